"""The old command. Type this instead: python -m programs study"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from programs.study import main

if __name__ == "__main__":
    print("python experiments/study.py is now: python -m programs study", file=sys.stderr)
    main()
