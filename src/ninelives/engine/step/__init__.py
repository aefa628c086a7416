"""A step: found in the journal, or executed and recorded.

- `envelope`: what all steps have in common, and the steps of `nl` itself (`Builtin`); the records of outcomes
- `resumable`: a call of a step from its lookup to its outcome; `threads`: plain `def` bodies and agents
- `model_call`: the same for a step with several ways to ask, or a cache
- `retry_pause`: the pause before the next attempt; `other_loops`: steps awaited on another event loop
- `approval`: a person approves an action before it starts; `question`: `nl.ask`; `inbox_request`: how both
  open an inbox item and wait for its answer
- `gate`: what governs a run is asked before a call; `holds`: why it must wait; `judging`: the question, and
  what the answer means for its arguments; `reservations`: what calls reserve under limits, and how that is
  settled
"""
