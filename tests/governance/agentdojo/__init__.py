"""AgentDojo's tasks and injections, with a model that obeys every injection it reads: `make agentdojo`.

It needs no model: AgentDojo's ground truths, for the user's tasks and for the injected ones, are carried out
as runs that a policy governs. `docs/agentdojo.md` says what came of it, and what that shows.
"""
