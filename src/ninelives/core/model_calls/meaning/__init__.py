"""Answers to questions that mean the same (`near=nl.Meaning(...)`), verified. Pure.

- `choice`: the declaration, and what to do with a question
- `question`: which text of a call's arguments is the question
- `guards` and `words`: what must not differ between two questions
- `record` and `bound`: what was compared, and how often answers are wrong at most
"""
