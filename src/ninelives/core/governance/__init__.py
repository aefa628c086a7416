"""What governs runs: what a policy is asked and answers.

- `verdicts`: a call that is judged, and the verdicts on it
- `accounts`: what commits reserve and spend under limits, and what they require
- `judged`: what a step's records keep of the verdict on its call
- `taint`: where data came from that a run has read
- `breaker`, `rate`: when calls of a step wait for a while; `costs`: what calls cost, in whole numbers
"""
