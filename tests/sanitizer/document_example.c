/* wrong-data-type, wrong-data-type, wrong-data-type, out-of-bounds, stale-result: the faults of a document's example, whose FLOAT data are said to be BFLOAT16, and whose targets have half of their bytes. */
#include "loss.h"

void program(bool faulty)
{
    Loss loss = SOUND_LOSS;
    loss.targets[0] = 0;
    if (faulty) {
        loss.type = ACL_BF16;
        loss.targetBytes = 8;
    }
    loss_run(loss);
}
