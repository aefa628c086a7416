"""`ninelives chaos`: the user's own agent, killed everywhere, and what is not crash-safe in it.

In each process of a trial:
    life      loads the agent and works on its run     calls     its steps, seen from within
    witness   what the code does to the world          trap      faults from within, and the store's
    ledger    all of that, in a file                   order     what a life is told
    clock     sleeps that are skipped

Around them:
    cradle    forks the lives                          trial     one run, through many lives
    script    what befalls a run, life by life         campaign  the calm runs, then all trials
    tree      copies of the working directory          effects   what was done, and what of that twice
    source    what the code says around a line         findings  what is to be mended
    likeness  is a run as those without faults         screen    what a person sees
    judge     the four numbers                         page      the report as a page, with its plots
    proxy     requests on their way                    timelines the lives of each run, drawn
    scratch   a store for each trial                   plan      which scripts, and how long each has
    command   all of it, in order
"""
