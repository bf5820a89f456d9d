/* product-refuses: smoothing is not supported on Atlas A2. */
#include "loss.h"

void faulty(void)
{
    Loss loss = SOUND_LOSS;
    loss.labelSmoothing = 0.1;
    loss_run(loss);
}

void sound(void)
{
    Loss loss = SOUND_LOSS;
    loss.labelSmoothing = 0;
    loss_run(loss);
}
