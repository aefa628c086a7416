"""What executes runs. Each package may import those after it.

- `worker`: claims runs and executes them; `agent`: the `nl.*` names
- `protected`: actions that must not be repeated blindly; `step`: every other step
- `run`: one run in memory; `hooks`: observers of it; `governor`: what may judge and hold its calls;
  `model_calls`: what answers model calls
- `spec`: what users declare
- `context`: the current run, branch and body; `commit`: the write path
- `lease`: until when this process may act; `machine`: this host, boot and process
"""
