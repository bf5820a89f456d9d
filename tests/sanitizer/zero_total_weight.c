/* zero-total-weight: no row has a weight, and the mean divides by their sum. */
#include "loss.h"

void program(bool faulty)
{
    Loss loss = SOUND_LOSS;
    loss.weights[2] = 0;
    if (faulty) loss.weights[0] = 0;
    loss_run(loss);
}
