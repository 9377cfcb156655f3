"""The old command. Type this instead: python -m programs evaluate"""

import sys

from programs.evaluate import main

if __name__ == "__main__":
    print("python evaluate.py is now: python -m programs evaluate", file=sys.stderr)
    main()
