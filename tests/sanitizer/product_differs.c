/* product-differs, product-differs: on Atlas A2 the factor of the z-loss and what goes with it have no effect. */
#include "loss.h"

void faulty(void)
{
    Loss loss = SOUND_LOSS;
    loss.scale = 0.5;
    loss_run(loss);
}

void sound(void)
{
    Loss loss = SOUND_LOSS;
    loss.scale = 0;
    loss_run(loss);
}
