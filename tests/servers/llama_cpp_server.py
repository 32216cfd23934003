"""llama-cpp-python's own server, which also ends when its stdin does: whatever becomes of the test, nothing is left."""

import os
import runpy
import sys
import threading


def end_with_stdin():
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=end_with_stdin, daemon=True).start()
runpy.run_module("llama_cpp.server", run_name="__main__", alter_sys=True)
