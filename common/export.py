"""The old command. Type this instead: python -m programs export"""

import sys

from programs.export import main

if __name__ == "__main__":
    print("python -m common.export is now: python -m programs export", file=sys.stderr)
    main()
