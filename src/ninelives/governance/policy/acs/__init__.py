"""Policies of the Agent Control Specification: `Runtime(policy=[AgentControl("manifest.yaml")])`.

Needs `pip install 'ninelives[acs]'`. `adapter` judges calls by the specification's own engine.
"""

from ninelives.governance.policy.acs.adapter import AgentControl

__all__ = ["AgentControl"]
