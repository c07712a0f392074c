"""`python -m sluicegate.demo`."""

from sluicegate.demo.main import demo

if __name__ == "__main__":
    demo(prog_name="python -m sluicegate.demo")
