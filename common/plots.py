"""The old command. Type this instead: python -m programs plot"""

import sys

from programs.plot import main

if __name__ == "__main__":
    print("python -m common.plots is now: python -m programs plot", file=sys.stderr)
    main()
