/* product-differs, product-differs: on Atlas A2 the factor of the z-loss and what goes with it have no effect. */
#include "loss.h"

void program(bool faulty)
{
    Loss loss = SOUND_LOSS;
    loss.scale = faulty ? 0.5 : 0;
    loss_run(loss);
}
