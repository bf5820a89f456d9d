/* zero-total-weight: no row has a weight, and the mean divides by their sum. */
#include "loss.h"

void faulty(void)
{
    Loss loss = SOUND_LOSS;
    loss.weights[0] = loss.weights[2] = 0;
    loss_run(loss);
}

void sound(void)
{
    Loss loss = SOUND_LOSS;
    loss.weights[2] = 0;
    loss_run(loss);
}
