"""The words that guards know, in English: which count by themselves, which mean the same, which are glue."""

from __future__ import annotations

from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(pair.split("/")) for pair in text.split())


def _same(text: str) -> dict[str, str]:
    return {word: line.split()[0] for line in text.strip().splitlines() for word in line.split()}


NUMBER_WORDS: Final = {
    "zero": "0", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "fifteen": "15", "twenty": "20", "thirty": "30",
    "forty": "40", "fifty": "50", "sixty": "60", "ninety": "90", "hundred": "100", "thousand": "1000",
    "million": "1000000", "billion": "1000000000",
}  # fmt: skip
NEGATIONS: Final = _words(
    "not no never none nothing nowhere neither nor cannot without except excluding unless hardly avoid"
) | {"nobody"}
COUNTING: Final = _words(
    """
    all any every each some only both either most least more less fewer few many much enough same other
    another else different always sometimes often usually rarely once twice first second third fourth
    fifth last next previous former latter final initial half double triple quarter dozen single multiple
    average total min max minimum maximum highest lowest biggest smallest largest oldest newest latest
    earliest best worst today tomorrow yesterday tonight now later soon already still yet ago currently
    formerly recently daily weekly monthly yearly annual hourly morning noon afternoon evening night
    midnight weekend second seconds minute minutes hour hours day days week weeks month months year years
    century decade monday tuesday wednesday thursday friday saturday sunday january february march april
    may june july august september october november december spring summer autumn fall winter left right
    up down top bottom front back north south east west inside outside upper lower red green blue yellow
    black white orange purple brown grey gray pink male female man woman men women boy girl mother father
    son daughter husband wife brother sister celsius fahrenheit kelvin meter meters metre metres mile
    miles km kg pound pounds gram grams litre liter dollar dollars euro euros usd eur gbp yen percent gb
    mb tb kb before after until since during while by within between against towards than instead despite
    if because to from into onto off on out over under above below through across via
    """
)
"""Words of a closed kind: if only one of two questions has such a word, they may differ by it."""
LOOSE: Final = _words("to on out over from second march may fall right back down up if")
"""Of those, words that paraphrases add and drop without any meaning; the guard of roles looks at them."""
RELATIONS: Final = _words(
    "to from into onto before after than by over under above below between against of for"
)
OPPOSITES: Final = _pairs(
    """
    on/off with/without enable/disable enabled/disabled start/stop open/close opened/closed in/out up/down
    high/low higher/lower hot/cold old/new older/younger oldest/youngest old/young big/small large/small
    long/short fast/slow increase/decrease raise/lower add/remove insert/delete create/delete
    install/uninstall buy/sell push/pull send/receive give/take lend/borrow import/export upload/download
    encode/decode encrypt/decrypt encrypted/unencrypted lock/unlock log-in/log-out login/logout
    sign-in/sign-out import/export input/output before/after early/late earlier/later first/last
    previous/next always/never all/none everything/nothing allow/deny allow/forbid permit/forbid
    accept/reject accept/decline approve/deny approve/reject include/exclude connect/disconnect
    attach/detach mount/unmount subscribe/unsubscribe follow/unfollow true/false yes/no good/bad
    better/worse best/worst safe/dangerous safe/unsafe legal/illegal possible/impossible public/private
    internal/external inside/outside above/below over/under left/right north/south east/west win/lose
    won/lost pass/fail success/failure positive/negative plus/minus maximum/minimum max/min most/least
    more/less increase/reduce expand/collapse show/hide visible/hidden read/write load/save pause/resume
    ascending/descending asc/desc forward/backward forwards/backwards push/pop refund/charge credit/debit
    deposit/withdraw deposit/withdrawal income/expense profit/loss parent/child client/server
    source/target source/destination sender/recipient sender/receiver buyer/seller employer/employee
    teacher/student male/female man/woman men/women mother/father son/daughter husband/wife brother/sister
    king/queen arrive/depart arrival/departure enter/leave entry/exit begin/end gain/lose lose/find
    love/hate like/dislike mandatory/optional required/optional synchronous/asynchronous sync/async
    manual/automatic static/dynamic absolute/relative horizontal/vertical row/column rows/columns
    left/joined day/night am/pm summer/winter upgrade/downgrade promote/demote attack/defend ask/answer
    question/answer cause/effect cause/cure dry/wet empty/full light/dark light/heavy thick/thin
    wide/narrow deep/shallow strong/weak rich/poor cheap/expensive hard/soft hard/easy difficult/easy
    alive/dead birth/death born/died married/divorced
    """
)
INTERROGATIVES: Final = {
    "who": "who", "whose": "who", "whom": "who", "when": "when", "where": "where", "why": "why",
}  # fmt: skip
PERSONS: Final = {
    **dict.fromkeys(("i", "me", "my", "mine", "we", "us", "our", "ours", "myself"), "1"),
    **dict.fromkeys(("you", "your", "yours", "yourself"), "2"),
    **dict.fromkeys(("he", "him", "his", "she", "her", "hers", "they", "them", "their"), "3"),
}
PAST: Final = _words("was were did had")
FUTURE: Final = _words("will shall won't gonna")
GLUE: Final = _words(
    """
    a an the this that these those there here it its itself is are am be been being was were do does did
    done have has had can could would should will shall may might must ought what which whose
    when where why how i me my mine we us our ours you your yours he him his she her hers they them their
    one ones and or but so of in on at to for from by with about as into onto out over than then just
    really actually please kindly give show let help know want need like wish get got explain way
    ways thing things does some any also very too if not no yes hi hello hey thanks thank ok okay up down
    exactly possible possibly
    """
) | {"who", "whom", "tell"}
COURTESIES: Final = (
    "can you", "could you", "would you", "will you", "can u", "please", "kindly",
    *(f"{verb} me" for verb in ("tell", "show", "give", "help")), "let me know", "do you know",
    "i want to know", "i would like to know", "i'd like to", "i would like to", "i need to know",
    "i want you to", "i need you to", "i want to", "i need to",
)  # fmt: skip
SYNONYMS: Final = _same(
    """
    change update modify edit alter
    delete remove erase
    buy purchase
    begin start commence
    fix repair
    find locate
    show display
    cost price
    phone telephone cellphone
    photo picture image photograph
    movie film
    car automobile
    big large
    fast quick rapid
    job occupation
    learn study
    improve better enhance
    build make create construct
    purpose aim goal
    difference distinction
    mean meaning definition define
    error bug fault
    website site webpage
    app application
    answer reply response
    quickly fast
    weight kilo kilos
    lose reduce
    biggest largest
    main major primary
    reason cause
    get obtain
    choose pick select
    effect impact
    advantage benefit
    disadvantage drawback
    company firm
    house home
    kid child
    kids children
    """
)
