"""A program of nine steps, each with its checkpoint, and a search over its rate."""

TRAINS = """
    import causeway, json, os, pathlib, sys, time
    lr, step = float(sys.argv[2]), 0
    if resume := os.environ.get("CAUSEWAY_RESUME"):
        step = json.loads(pathlib.Path(resume, "state.json").read_text())
    print(f"goes on from {step}", flush=True)
    held = pathlib.Path.home() / "held"
    while step < 9:
        time.sleep(0.4)
        while step > 1 and held.exists() and not causeway.should_stop():
            time.sleep(0.2)
        step += 1
        causeway.report(step, loss=lr + 1 / step)
        with causeway.checkpoint(step) as folder:
            (folder / "state.json").write_text(str(step))
        if causeway.should_stop():
            sys.exit()
"""
"""It stays at its second step while its home has a file ``held``."""
SEARCH = """
name: toy
run: python3 train.py {--lr}
gpus: 0
grace: 20s
sweep:
  parameters: {lr: {float: [0, 1]}}
  metric: loss
  trials: 6
  parallel: 3
  sampler: random
  stop: {rule: asha, max: 9}
"""
