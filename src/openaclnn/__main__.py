"""`python -m openaclnn`."""

import sys

from openaclnn.cli import main

sys.exit(main())
