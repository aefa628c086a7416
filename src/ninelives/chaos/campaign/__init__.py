"""The campaign: all trials of one `ninelives chaos`.

- `plan` chooses the scenarios, `campaign` runs them, `comparison` compares each trial with calm runs
"""
