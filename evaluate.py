"""The old command. Type this instead: python -m programs evaluate"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # which PYTHONSAFEPATH leaves out
from programs.evaluate import main

if __name__ == "__main__":
    print("python evaluate.py is now: python -m programs evaluate", file=sys.stderr)
    main()
