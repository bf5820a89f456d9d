/* target-out-of-range: classes are 0 to 2. */
#include "loss.h"

void faulty(void)
{
    Loss loss = SOUND_LOSS;
    loss.targets[1] = 3;
    loss_run(loss);
}

void sound(void)
{
    Loss loss = SOUND_LOSS;
    loss.targets[1] = -100; /* which is ignored */
    loss_run(loss);
}
