"""`python -m openaclnn.cli`."""

import sys

from openaclnn.cli import main

sys.exit(main())
