/* target-out-of-range: classes are 0 to 2. */
#include "loss.h"

void program(bool faulty)
{
    Loss loss = SOUND_LOSS;
    loss.targets[1] = faulty ? 3 : -100; /* which is ignored */
    loss_run(loss);
}
