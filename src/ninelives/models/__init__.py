"""How model calls are answered: several ways to ask, second requests, and answers that are reused.

- `ways`: one attempt of a call, over its ways; `race`: requests under way, and which of them answers
- `cache`: an attempt is looked up, and its answer kept; `entries`: cached answers as documents
- `meaning_cache`: questions that mean the same; `meaning_notes`: questions and comparisons as documents;
  `meaning_index`: the nearest questions; `embedders`: vectors by usual packages
- `upkeep`: what is removed from caches; `report`: what they hold and save
- `known`: what this process knows of a step's ways; `install`: what the executions of a runtime share
"""
