"""`ninelives chaos`: kill the user's agent at every step, and report what in it is not crash-safe.

A campaign makes two calm runs, then one trial per scenario. Each trial is one run of the agent on a scratch
store, executed by real processes that are killed, stopped or cut off from the store.

    protocol    messages to a process of a trial       ledger    the file in which processes log what they do
    process/    inside such a process: run the agent, inject the fault, record steps and effects
    trial/      one trial: fork the processes, prepare tree, store and proxy, play the scenario
    campaign/   choose the scenarios, run them, compare each trial with the calm runs
    findings/   what went wrong and where: repeated effects, changed arguments; the four numbers
    report/     terminal, HTML page, JSON
"""
