/* product-refuses: smoothing is not supported on Atlas A2. */
#include "loss.h"

void program(bool faulty)
{
    Loss loss = SOUND_LOSS;
    loss.labelSmoothing = faulty ? 0.1 : 0;
    loss_run(loss);
}
