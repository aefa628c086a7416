"""Policies in Cedar: `Runtime(policy=[Cedar("shop.cedar")])`. Needs `pip install 'ninelives[cedar]'`.

- `adapter`: judges calls; `schema`: what Cedar may know of a call, from the annotations of its action
"""

from ninelives.governance.policy.cedar.adapter import Cedar

__all__ = ["Cedar"]
