"""What governs runs: what a policy is asked and answers.

- `verdicts`: a call that is judged, and the verdicts on it
- `accounts`: what commits reserve and spend under limits, and what they require
- `judged`: what a step's records keep of the verdict on its call
- `taint`: where data came from that a run has read
- `costs`: what a call is expected to cost, in whole numbers; `breaker`: when failures stop a step's calls
"""
