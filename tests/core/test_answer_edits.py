"""Edits of a sentence, one at a time: each harmful one is seen, each harmless one is let pass.

The tables name the kinds. The properties put the same kinds of edit into any sentence, also of the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from citewire.documents import load
from citewire.verification.match import SearchableText
from citewire.verification.policy import judge_quote
from support.cases import need_cases

# {what the source says→what the quote says}, by kind.
HARMFUL = {
    "unit power": "The room has 5 {m²→m} of floor and a tall window.",
    "unit power other": "The room has 5 {m²→m³} of floor and a tall window.",
    "negative power": "A dose of {10⁻⁶→10⁻⁹} grams was given to each of them.",
    "power sign": "A dose of {10⁻⁶→10⁶} grams was given to each of them.",
    "caret": "A dose of {10^6→10^9} units was given to each of them.",
    "signed power": "The charge was {-10²→10²} units in each of the cells.",
    "formula": "They measured {CO₂→CO} in the air of every room.",
    "formula 2": "They drank {H₂O→H₂O₂} and nothing else for a day.",
    "isotope": "The sample held {¹⁴C→¹²C} in small amounts only.",
    "ion": "A solution of {Ca²⁺→Ca³⁺} was added to the mixture.",
    "a power as digits": "A dose of {10²→102} units was given to each of them.",
    "digits as a power": "A dose of {102→10²} units was given to each of them.",
    "a footnote as a digit": "It was built in {2019²→20192} by two of the brothers.",
    "raised for lowered": "They call it {x₂→x²} in every one of the books.",
    "lowered and raised": "They call it {x₁²→x12} in every one of the books.",
    "many digits": "The key is {12345678901234567890123456789012→12345678901234567890123456789013} here.",
    "fraction": "Add {½→¼} cup of sugar to the bowl and stir.",
    "fraction gone": "Add {1½→1} cups of sugar to the bowl and stir.",
    "fraction range": "Add {1/2→1-2} cup of sugar to the bowl and stir.",
    "fraction cut": "{Mix well and then add 3/4→4} cups of sugar.",
    "range": "The course takes {10-20→10, 20} days in most of the cases.",
    "scale cut": "To keep the water clean costs them {5 million dollars.→5}",
    "range cut": "In most of the cases the course takes {10-20 days.→10}",
    "leading point": "They paid {5→.5} million for the old house by the sea.",
    "version": "It needs Ubuntu {22.10→22.1} or something newer to run.",
    "level": "The car is parked on level {-3→3} of the garage.",
    "loss": "The net income of the year was {(1,204)→1,204} thousand.",
    "identifier zeros": "The order has number {00123→123} in the old system.",
    "ratio": "The odds were {3:1→3-1} against the young horse.",
    "less than": "The water held {<→>} 5 mg of lead in each litre.",
    "less than cut": "{The water held < →}5 mg of lead in each litre.",
    "approximately": "The bridge is {~50→50} m long and made of steel.",
    "older than": "Entry is free for visitors aged {65+→65} on Sundays.",
    "per mille": "The rate of the tax is {5‰→5%} in most of the towns.",
    "Arabic percent": "The rate of the tax is {٥٪→٥} in most of the towns.",
    "basis points": "The bank raised the rate by 25 {basis →}points in May.",
    "Australian": "He paid {A$500→$500} for the painting in the hall.",
    "ruble": "He paid {₽500→₩500} for the painting in the hall.",
    "bits": "The line carries 5 {MB→Mb} in every second of the day.",
    "metres": "The sign says 5 {M→m} and it is hard to read at night.",
    "per": "The wind blew at 5 {m/s→ms} from the west all day.",
    "plus": "The formula says a {+→-} b and this is all there is.",
    "not equal": "It holds that a {≠→=} b for all of these values.",
    "infinity": "The sum goes to{ ∞→} when the steps are small.",
    "arrow": "Sales {↑→↓} 5% in the north and in the south.",
    "triangle": "Sales {▲→▼} 5% in the north and in the south.",
    "box": "{☑→☐} I agree with the terms of the contract above.",
    "C++": "The program was written in {C++→C} by two students.",
    "C++ cut": "{They wrote all of the program in C++.→They wrote all of the program in C+}",
    "C++ cut more": "{They wrote all of the program in C++.→They wrote all of the program in C}",
    "C#": "The program was written in {C#→C} by two students.",
    "circled": "See {①→②} in the table below for what it costs.",
    "ideographic zero": "{会议在二〇二〇年召开并通过了决议。→会议在二二年召开并通过了决议。}",
    "address": "Write to {john.doe@example.org→john_doe@example.org} for a copy of it.",
    "domain": "The data are at {my-site.org→mysite.org} for everyone to see.",
    "name in code": "The function {read_file→readfile} opens the file and waits.",
    "in sufficient": "The report describes it {in sufficient→insufficient} detail for all.",
    "insufficient": "The board found {insufficient→in sufficient} evidence for the claim.",
    "a part": "He lives {a part→apart} of the year in a small village.",
    "not able": "She was {not able→notable} to finish the work on time.",
    "re-sign": "He wants to {re-sign→resign} the contract before the summer.",
    "its": "The company said that {it's→its} own people did the work.",
    "we're": "In that year {we're→were} in the middle of the war.",
    "non- cut": "{Non-smokers→smokers} pay less for the same insurance.",
    "-free cut": "The shop by the river sells {fat-free milk.→fat}",
    "a few": "She had{ a→} few friends in the small town.",
    "an article for another": "Smoking is {a→the} cause of the disease in adults.",
    "an article twice": "Smoking is{→ the} the cause of disease in adults.",
    "an article moved": "Smoking is {→cause }the{ cause→} of disease in adults.",
    "vitamin A": "The fruit is rich in vitamin {A →}and tastes sweet.",
    "question": "The drug is safe for children of any {age.→age?}",
    "bracket negation first": "{All→[Not] all} employees must complete the training this year.",
    "bracket number last": "All employees must complete the training {this year.→[in 3 days]}",
    "bracket quantifier": "The employees must{→ [all]} complete the training this year.",
    "bracket word": "The {board→[committee]} approved the plan for the new bridge.",
    "bracket name": "It was {Maria Smith→[John Jones]} who approved the plan in May.",
    "bracket claim": "The mayor{→ [who had been convicted of fraud twice]} opened the new bridge.",
    "bracket over a number": "Revenue rose {12.5%→[sharply]} in the first half of the year.",
    "under a footnote": "The end of it was near;[³]{ and→} it was the largest of the towns.",
    "under brackets": "The board {debated and rejected what some others had→[has]} approved in May.",
    "under sic": "The drug was {very→[sic]} effective in most of the patients.",
    "percent points word": "The rate rose by 2 {percentage points→percent} last year.",
    "comma moved": "It sold {12,345→1,2345} copies in the first week of May.",
    "roman": "World War {II→I} began in Europe in the autumn.",
    "ordinal": "She came {3rd→2nd} in the race along the river.",
    "weekday": "The office is closed on {Monday→Sunday} and on Friday.",
    "noon": "The office opens at 10:30 {a.m.→p.m.} on most days.",
    "hyper": "The patient suffers from {hypertension→hypotension} and headaches.",
    "shall": "The tenant {shall→may} pay the rent on the first day.",
    "at least": "The tank holds at {least→most} 40 litres of clean water.",
    "only moved": "{Only members→Members} may{→ only} vote in the spring meeting.",
    "and or": "You may bring a coat {and→or} a hat to the meeting.",
    "double negation": "It is{ not→} uncommon to see them in the winter.",
    "he she": "He said that {he→she} would not come to the meeting.",
    "acronym": "The {FDA→FBI} approved the drug for use in children.",
    "ellipsis order": "{First came the rain. →}Then came the long {drought.→drought ... First came the rain}",
    "ellipsis and digit": "They sold {450→460} cars {and 30 boats→...} in the first year.",
}
HARMLESS = {
    "initials": "The {U.S.→US} economy grew faster than in the years before.",
    "initials apart": "{J.R.R.→J. R. R.} Tolkien wrote the book in a cold room.",
    "caret for power": "A dose of {10⁶→10^6} units was given to each of them.",
    "sup": "A dose of {10⁶→10<sup>6</sup>} units was given to each of them.",
    "sub": "They measured {CO₂→CO<sub>2</sub>} in the air of every room.",
    "plain digits for lowered": "They measured {CO₂→CO2} in the air of every room.",
    "plain digits for raised": "The room has 5 {m²→m2} of floor and a tall window.",
    "raised digits for plain": "The room has 5 {m2→m²} of floor and a tall window.",
    "formula raised": "They measured {CO²→CO2} in the air of every room.",
    "formula plain": "They drank {H2O→H₂O} and nothing else for a day.",
    "ion in plain digits": "A solution of {Ca²⁺→Ca2+} was added to the mixture.",
    "negative power in plain digits": "The wind blew at 5 m {s⁻¹→s-1} from the west all day.",
    "a footnote on the line": "The drug was {effective¹→effective1} in most of the patients.",
    "from an hour": "{The show runs from 15:25 - 16:40 in the hall.→The show runs from 15:25}",
    "to an hour": "{The show runs from 15:25 - 16:40→16:40} in the hall.",
    "from a day": "{The show runs from 3.5.2020 – 6.7.2020 in the hall.→The show runs from 3.5.2020}",
    "trade mark": "The {Acme™→Acme} phone was sold in all of the {shops.→shops℠.}",
    "pointed": "{בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת→בראשית ברא אלהים את} השמים ואת הארץ",
    "vowels": "{الحَمْدُ لِلَّهِ رَبِّ→الحمد لله رب} العالمين",
    "Hangul in its parts": "{\u1106\u1169\u1103\u1173\u11ab→모든} 직원은 교육을 완료해야 한다고 했다.",
    "Korean lines": "모든 직원은{\n→ }교육을 {완료해\n야→완료해야} 한다고 했다.",
    "wide letters": "{ＡＢＣ\nＤＥＦ→ABC DEF} is written in wide letters here.",
    "fraction in three": "Add {1½→1 1/2} cups of sugar to the bowl and stir.",
    "spaced range": "The course takes {10-20→10 – 20} days in most of the cases.",
    "Swiss groups": "The town has {1,204,300→1'204'300} people in the summer.",
    "thin groups": "The town has {1,204,300→1\u202f204\u202f300} people in the summer.",
    "decimal comma": "The rate was {12.5%→12,5 %} in the first half of the year.",
    "zero in front": "The rate was {.5%→0.5%} in the first half of the year.",
    "cents": "He paid {$5.00→$5} for the book about the sea.",
    "ampersand": "Research {&→and} development costs rose in every year.",
    "ampersand entity": "Research {&→&amp;} development costs rose in every year.",
    "ligature of letters": "{L’œuvre→L'oeuvre} est au {cœur→coeur} de la ville depuis longtemps.",
    "ß": "Die {Straße→Strasse} war lang und die Häuser waren {groß.→gross.}",
    "ё": "Он {ещё→еще} не {пришёл→пришел} домой, и все его ждут.",
    "tatweel": "لم {ترتفع الإيرادات→تـرتفع الإيـرادات} في مارس من هذا العام",
    "native digits": "ارتفع السعر في كل المدن إلى {٣٫٥→3.5} مليون في عام {٢٠٢٠→2020} كما قال الوزير أمس",
    "decomposed Hangul": "{모든→\u1106\u1169\u1103\u1173\u11ab} 직원은 교육을 완료해야 한다고 했다.",
    "full width punctuation": "{公司的收入没有增长，所有员工都知道。→公司的收入没有增长,所有员工都知道.}",
    "stars for dots": "The board met {and, after a long debate,→and * * *} approved the plan.",
    "remark": "The drug was effective in most of the {patients.→patients (emphasis added).}",
    "omitted": "The drug was effective{→ [citations omitted]} in most of the patients.",
    "references": "The drug was effective in most of the {patients.→patients [1, 2].}",
    "more references": "The drug was effective{→ [3–5]} in most of the {patients.→patients.[6][7]}",
    "marker of a model": "The drug was effective in most {patients.→patients【4:0†source】.}",
    "raised mark": "The drug was {effective→effective²} in most of the {patients.→patients.<sup>1</sup>}",
    "escapes": "The file (old) has 5 {*→\\*} 3 lines and a {name_with_it.→name\\_with\\_it.}",
    "line break tag": "{Over time→Over<br/>time} the costs of the project went down.",
    "block quote": "{→> }Over time the costs{→\n>} of the project went down.",
    "list": "{Over time→- **Over time**} the costs of the project went down.",
    "table": "{→| }Over time the costs of the project {→| }went down.{→ |}",
    "nested quotation marks": "{Over→“‘Over} time the costs of the project went {down.→down.’”}",
    "brackets for a pronoun": "Last year {it→[Acme]} raised its prices in all of the shops.",
    "brackets for who is meant": "{The company→[Acme]} raised its prices in all of the shops.",
    "brackets with another form": "The board will {approve→[be approving]} the plan for the new bridge.",
    "brackets of the source": "The board [of directors] approved the plan in May.",
    "dots of the source": "He said: wait ... no, go on, and left the room.",
    "angles of the source": "Run copy <file> <folder> to make a copy of it.",
    "stars of the source": "Pass it on as **options to the next function.",
    "the common word before brackets": "The {end. The end. The→[whole]} board of the town approved the plan.",
    "broken address": "See {https://example.org/a/\nb/c→https://example.org/a/b/c} for the data of it.",
    "no trademark": "The {Acme®→Acme} phone was sold in all of the shops.",
    "hyphenated compound": "The {re-elected→reelected} mayor opened the new bridge.",
    "times": "The sheet is 3 {×→x} 4 metres and made of paper.",
    "bullet between": "Over time the costs{ •→} of the project went down.",
    "a number word in parentheses": "{One→(One)} explanation is that it rained for most of the day.",
    "cut behind a number": "{It costs 5 →}dollars a year to keep the water clean.",
    "an exception in brackets": "It costs {only→[only]} five dollars a year to keep it.",
    "degrees": "Keep it at {5 °C→5°C} or below until you use it.",
    "title case": "It {went down.→Went Down.}",
}

# Language: what the source says, quotes that it does not say, quotes that it does.
LANGUAGES = {
    "German": (
        "Der Umsatz stieg im März 2020 um 12,5 Prozent auf 3,4 Millionen Euro, während die Kosten "
        "nicht zunahmen. Alle Mitarbeiter müssen die Schulung vor dem 30. Juni abschließen. "
        "Größere Straßen wurden gesperrt.",
        [
            "Der Umsatz stieg im Mai 2020 um 12,5 Prozent auf 3,4 Millionen Euro",
            "Der Umsatz sank im März 2020 um 12,5 Prozent",
            "während die Kosten zunahmen. Alle Mitarbeiter müssen",
            "auf 3,4 Milliarden Euro, während die Kosten nicht zunahmen",
            "Alle Mitarbeiter können die Schulung vor dem 30. Juni abschließen",
            "Keine Mitarbeiter müssen die Schulung vor dem 30. Juni abschließen",
            "Alle Mitarbeiter müssen die Schulung nach dem 30. Juni abschließen",
            "Der Umsatz stieg im März 2020 um 125 Prozent auf",
            "Einige Mitarbeiter müssen die Schulung vor dem 30. Juni",
        ],
        [
            "Der Umsatz stieg im März 2020 um 12,5 % auf 3,4 Millionen Euro",
            "Grössere Strassen wurden gesperrt",
            "„Alle Mitarbeiter müssen die Schulung vor dem 30. Juni abschließen“",
            "ALLE MITARBEITER MÜSSEN DIE SCHULUNG",
            "Der Umsatz stieg im März 2020 um 12.5 Prozent auf",
        ],
    ),
    "French": (
        "Le chiffre d’affaires n’a pas augmenté en mars 2020 : il est resté à 3,4 millions "
        "d’euros. Tous les employés doivent suivre la formation avant le 30 juin. L’œuvre est "
        "restée en cœur de ville.",
        [
            "Le chiffre d’affaires a augmenté en mars 2020",
            "n’a pas augmenté en mai 2020 : il est resté à",
            "n’a plus augmenté en mars 2020 : il est resté",
            "Certains employés doivent suivre la formation avant le 30 juin",
            "Tous les employés peuvent suivre la formation avant",
            "doivent suivre la formation après le 30 juin",
            "il est resté à 3,4 milliards d’euros",
            "n’a jamais augmenté en mars 2020 : il est resté",
        ],
        [
            "Le chiffre d'affaires n'a pas augmenté en mars 2020: il est resté à 3,4 millions d'euros.",
            "« Tous les employés doivent suivre la formation »",
            "L'oeuvre est restée en coeur de ville",
        ],
    ),
    "Spanish": (
        "Los ingresos no aumentaron en marzo de 2020 y todos los empleados deben completar la "
        "formación antes del 30 de junio. ¿Quién pagó 1.204 euros por el cuadro?",
        [
            "Los ingresos aumentaron en marzo de 2020 y todos",
            "Los ingresos no disminuyeron en marzo de 2020 y todos los",
            "Los ingresos nunca aumentaron en marzo de 2020",
            "y algunos empleados deben completar la formación antes",
            "los empleados pueden completar la formación antes del 30",
            "completar la formación después del 30 de junio",
            "completar la formación antes del 30 de julio",
            "¿Quién pagó 1,204 euros por el cuadro",
            "Quién pago 1.204 euros por el cuadro",
        ],
        [
            "los ingresos no aumentaron en marzo de 2020",
            "Quién pagó 1.204 euros por el cuadro?",
        ],
    ),
    "Italian": (
        "I ricavi non sono aumentati nel marzo 2020 e tutti i dipendenti devono completare la "
        "formazione prima del 30 giugno.",
        [
            "I ricavi sono aumentati nel marzo 2020 e tutti",
            "I ricavi non sono diminuiti nel marzo 2020 e tutti",
            "e alcuni dipendenti devono completare la formazione",
            "tutti i dipendenti possono completare la formazione prima",
            "completare la formazione dopo il 30 giugno",
        ],
        [
            "i ricavi non sono aumentati nel marzo 2020",
        ],
    ),
    "Portuguese": (
        "As receitas não aumentaram em março de 2020 e todos os funcionários devem concluir a "
        "formação antes de 30 de junho.",
        [
            "As receitas aumentaram em março de 2020 e todos os",
            "As receitas não diminuíram em março de 2020 e todos",
            "e alguns funcionários devem concluir a formação antes",
            "todos os funcionários podem concluir a formação antes",
            "As receitas nunca aumentaram em março de 2020",
        ],
        [
            "as receitas não aumentaram em março de 2020",
        ],
    ),
    "Dutch": (
        "De omzet is in maart 2020 niet gestegen en alle medewerkers moeten de training vóór 30 "
        "juni afronden.",
        [
            "De omzet is in maart 2020 gestegen en alle",
            "De omzet is in mei 2020 niet gestegen en alle",
            "De omzet is in maart 2020 niet gedaald en alle medewerkers",
            "geen medewerkers moeten de training vóór 30 juni afronden",
            "alle medewerkers mogen de training vóór 30 juni afronden",
            "alle medewerkers moeten de training na 30 juni afronden",
        ],
        [
            "De omzet is in maart 2020 niet gestegen",
        ],
    ),
    "Russian": (
        "Выручка не выросла в марте 2020 года, и все сотрудники должны пройти обучение до 30 июня. "
        "Это ещё не всё.",
        [
            "Выручка выросла в марте 2020 года, и все сотрудники",
            "Выручка не выросла в мае 2020 года, и все сотрудники",
            "Выручка не упала в марте 2020 года, и все",
            "и некоторые сотрудники должны пройти обучение до 30",
            "все сотрудники могут пройти обучение до 30 июня",
            "должны пройти обучение после 30 июня",
        ],
        [
            "Выручка не выросла в марте 2020 года",
            "Это еще не все",
        ],
    ),
    "Chinese": (
        "公司的收入在二〇二〇年三月没有增长，所有员工必须在6月30日之前完成培训。这项计划不可能实现。",
        [
            "公司的收入在二〇二〇年三月有增长，所有员工",
            "公司的收入在二〇二〇年五月没有增长",
            "公司的收入在二二年三月没有增长",
            "部分员工必须在6月30日之前完成培训",
            "所有员工可以在6月30日之前完成培训",
            "所有员工必须在6月30日之后完成培训",
            "所有员工必须在6月20日之前完成培训",
            "这项计划可能实现",
            "可能实现",
        ],
        [
            "公司的收入在二〇二〇年三月没有增长,所有员工必须在6月30日之前完成培训。",
            "所有员工必须在６月３０日之前完成培训",
            "「所有员工必须在6月30日之前完成培训」",
            "所有员工必须在 6 月 30 日之前完成培训",
            "所有员工必须在6月30日之前完成培训",
        ],
    ),
    "Japanese": (
        "会社の売上は2020年3月に増加しませんでした。"
        "すべての従業員は6月30日までに研修を完了しなければならない。この方法は安全ではない。",
        [
            "会社の売上は2020年3月に増加しました",
            "会社の売上は2020年5月に増加しませんでした",
            "一部の従業員は6月30日までに研修を完了しなければならない",
            "すべての従業員は6月20日までに研修を完了しなければならない",
            "この方法は安全である",
            "会社の売上は2020年3月に減少しませんでした",
            "この方法は安全では",
            "研修を完了し",
        ],
        [
            "すべての従業員は６月３０日までに研修を完了しなければならない。",
            "会社の売上は2020年3月に増加しませんでした",
        ],
    ),
    "Korean": (
        "회사의 매출은 2020년 3월에 증가하지 않았다. 모든 직원은 6월 30일까지 교육을 완료해야 "
        "한다. 이 방법은 안전하지 않다.",
        [
            "회사의 매출은 2020년 3월에 증가했다",
            "회사의 매출은 2020년 5월에 증가하지 않았다",
            "일부 직원은 6월 30일까지 교육을 완료해야 한다",
            "모든 직원은 6월 20일까지 교육을 완료해야 한다",
            "이 방법은 안전하다",
            "회사의 매출은 2020년 3월에 감소하지 않았다",
        ],
        [
            "모든 직원은 6월 30일까지 교육을 완료해야 한다.",
        ],
    ),
    "Arabic": (
        "لم ترتفع الإيرادات في مارس ٢٠٢٠ وبقيت عند ٣٫٥ مليون دولار، ويجب على جميع الموظفين إكمال "
        "التدريب قبل ٣٠ يونيو. ارتفع المعدل بنسبة ٥٠٪ هذا العام.",
        [
            "ترتفع الإيرادات في مايو ٢٠٢٠ وبقيت عند ٣٫٥ مليون",
            "لن ترتفع الإيرادات في مارس ٢٠٢٠ وبقيت عند",
            "وبقيت عند ٣٥ مليون دولار، ويجب على جميع الموظفين",
            "ويجب على بعض الموظفين إكمال التدريب قبل",
            "ويجب على جميع الموظفين إكمال التدريب بعد ٣٠ يونيو",
            "إكمال التدريب قبل ٢٠ يونيو. ارتفع المعدل",
            "ارتفع المعدل بنسبة ٥٠ هذا العام",
            "لم ترتفع الإيرادات في مارس ٢٠٢١",
        ],
        [
            "لم ترتفع الإيرادات في مارس 2020 وبقيت عند 3.5 مليون دولار",
            "لم تـرتفع الإيـرادات في مارس ٢٠٢٠",
            "لَم تَرتفع الإيرادات في مارس ٢٠٢٠",
        ],
    ),
    "Hebrew": (
        "ההכנסות לא עלו במרץ 2020, וכל העובדים חייבים להשלים את ההכשרה לפני 30 ביוני.",
        [
            "ההכנסות עלו במרץ 2020, וכל העובדים חייבים",
            "ההכנסות לא ירדו במרץ 2020, וכל העובדים",
            "העובדים רשאים להשלים את ההכשרה לפני 30 ביוני",
            "להשלים את ההכשרה אחרי 30 ביוני",
        ],
        [
            "ההכנסות לא עלו במרץ 2020",
            "ההכנסות לֹא עלו במרץ 2020",
        ],
    ),
    "Hindi": (
        "मार्च २०२० में राजस्व नहीं बढ़ा और सभी कर्मचारियों को ३० जून से पहले प्रशिक्षण पूरा करना होगा।",
        [
            "मार्च २०२० में राजस्व बढ़ा और सभी कर्मचारियों को",
            "मार्च २०२१ में राजस्व नहीं बढ़ा और सभी",
            "और कुछ कर्मचारियों को ३० जून से पहले प्रशिक्षण",
            "सभी कर्मचारियों को ३० जून के बाद प्रशिक्षण",
        ],
        [
            "मार्च 2020 में राजस्व नहीं बढ़ा और सभी",
            "मार्च २०२० में राजस्व नहीं बढ़ा",
        ],
    ),
    "Thai": (
        "รายได้ไม่ได้เพิ่มขึ้นในเดือนมีนาคม ๒๕๖๓ และพนักงานทุกคนต้องเข้ารับการฝึกอบรมก่อนวันที่ 30 มิถุนายน",
        [
            "รายได้ได้เพิ่มขึ้นในเดือนมีนาคม ๒๕๖๓ และพนักงานทุกคน",
            "รายได้ไม่ได้เพิ่มขึ้นในเดือนพฤษภาคม ๒๕๖๓ และพนักงาน",
            "พนักงานบางคนต้องเข้ารับการฝึกอบรมก่อนวันที่ 30",
            "การฝึกอบรมหลังวันที่ 30 มิถุนายน",
            "รายได้ไม่ได้เพิ่มขึ้นในเดือนมีนาคม ๒๕๖๔",
            "ได้เพิ่มขึ้นในเดือนมีนาคม ๒๕๖๓",
        ],
        [
            "รายได้ไม่ได้เพิ่มขึ้นในเดือนมีนาคม 2563",
            "รายได้ไม่ได้เพิ่มขึ้นในเดือนมีนาคม ๒๕๖๓",
        ],
    ),
}


SHORT = {
    "at the end of a sentence": ("Costs fell by a third.", "Costs fell by a half."),
    "in Japanese": ("この方法は危険である。", "この方法は安全である"),
    "in three words": ("Costs increased slightly.", "Costs decreased slightly."),
}


@pytest.mark.parametrize(("sentence", "quote"), SHORT.values(), ids=SHORT)
def test_a_word_of_a_short_quote(sentence: str, quote: str) -> None:
    """What is left is enough to say which place was meant."""
    assert judge_quote(quote, _source(sentence)).status == "altered"


@pytest.mark.parametrize(
    "quote", ["4 Implementation.", "Additionally, we", "この問題は重大である", "Costs rose, they said."]
)
def test_what_only_looks_like_a_short_quote_is_missed(quote: str) -> None:
    text = "Our implementation is small. Additionally, during May it ran. この方法は安全である。Costs fell"
    assert judge_quote(quote, _source(text)).status == "missed"


def _read(edited: str) -> tuple[str, str]:
    """What the source says, and what the quote says."""
    return re.sub("{(.*?)→.*?}", r"\1", edited, flags=re.DOTALL), re.sub(
        "{.*?→(.*?)}", r"\1", edited, flags=re.DOTALL
    )


def _source(sentence: str) -> SearchableText:
    return SearchableText(f"Before it. {sentence} Afterwards there is more.")


@pytest.mark.parametrize("edited", HARMFUL.values(), ids=HARMFUL)
def test_harmful(edited: str) -> None:
    sentence, quote = _read(edited)
    finding = judge_quote(quote, _source(sentence))
    assert finding.status in ("altered", "missed"), finding
    assert judge_quote(sentence, _source(sentence)).status == "verified"


@pytest.mark.parametrize("edited", HARMLESS.values(), ids=HARMLESS)
def test_harmless(edited: str) -> None:
    sentence, quote = _read(edited)
    finding = judge_quote(quote, _source(sentence))
    assert finding.status == "verified", finding


@pytest.mark.parametrize(("text", "harmful", "harmless"), LANGUAGES.values(), ids=LANGUAGES)
def test_languages(text: str, harmful: list[str], harmless: list[str]) -> None:
    verdicts = {quote: judge_quote(quote, _source(text)).status for quote in (*harmful, *harmless)}
    assert {quote: verdicts[quote] for quote in harmless} == dict.fromkeys(harmless, "verified")
    assert not [quote for quote in harmful if verdicts[quote] not in ("altered", "missed")]


@pytest.mark.parametrize(
    ("sentence", "quote", "warning"),
    [
        pytest.param("他说这项计划大概不会实现。", "会实现", None, id="Chinese, cut in the word"),
        pytest.param("この方法は安全では決してない。", "この方法は安全では決して", None, id="Japanese, cut"),
        pytest.param("이 방법은 안전하지 않다고 했다.", "이 방법은 안전하지", "않", id="Korean"),
        pytest.param("Er sagte, dass er nicht kommen werde.", "kommen werde", "nicht", id="German"),
        pytest.param("He will pay, but only if it rains.", "He will pay", "but", id="an exception"),
        pytest.param("He will pay. But she will not.", "He will pay", "", id="another sentence"),
    ],
)
def test_what_stands_beside_a_quote(sentence: str, quote: str, warning: str | None) -> None:
    """A negation that is part of the word is a difference, one that stands beside it a warning."""
    finding = judge_quote(quote, _source(sentence))
    assert finding.status == ("altered" if warning is None else "verified")
    assert bool(finding.warnings) == bool(warning) or warning is None
    assert not warning or warning in " ".join(finding.warnings)


@pytest.mark.parametrize(
    ("sentence", "quote"),
    [
        pytest.param("It was the cause of the fire.", "It was cause of the fire.", id="an article less"),
        pytest.param("It was cause of the fire.", "It was the cause of the fire.", id="an article more"),
        pytest.param("It did, they say, not burn.", "It did ... burn.", id="a negation left out"),
        pytest.param("他们说这项计划可能不会实现的。", "他们说这项计划……实现的", id="left out in Chinese"),
        pytest.param("It burns, if it is dry, all day.", "It burns ... all day.", id="an exception left out"),
    ],
)
def test_partial(sentence: str, quote: str) -> None:
    """All that is partial: an article more or less, or an ellipsis over a word that may turn the sentence."""
    assert judge_quote(quote, _source(sentence)).status == "partial"


OWN = [_read(edited)[0] for edited in HARMFUL.values() if re.search("[a-z]{3}", edited)]
Edit = Callable[[list[str], Random], list[str]]


def _at(words: list[str], random: Random) -> int:
    """Where a word stands that is a word only, and not the first or the last."""
    plain = [at for at in range(1, len(words) - 1) if re.fullmatch("[a-z]{4,}", words[at])]
    assume(plain)
    return random.choice(plain)


def _instead(replaced: Callable[[str], str]) -> Edit:
    def edit(words: list[str], random: Random) -> list[str]:
        at = _at(words, random)
        return [*words[:at], *replaced(words[at]).split(" "), *words[at + 1 :]]

    return edit


def _number(changed: Callable[[str], str]) -> Edit:
    def edit(words: list[str], random: Random) -> list[str]:
        numbers = [at for at, word in enumerate(words) if re.fullmatch(r"[1-9]\d*[.,]?", word)]
        assume(numbers)
        at = random.choice(numbers)
        return [*words[:at], changed(words[at]), *words[at + 1 :]]

    return edit


HARMFUL_EDITS: dict[str, Edit] = {
    "not before": _instead(lambda word: f"not {word}"),
    "never after": _instead(lambda word: f"{word} never"),
    "un": _instead(lambda word: f"un{word}"),
    "non-": _instead(lambda word: f"non-{word}"),
    "in": _instead(lambda word: f"in{word}x"),
    "only": _instead(lambda word: f"only {word}"),
    "another word": _instead(lambda _: "bananas"),
    "a name": _instead(lambda _: "Johnson"),
    "twice": _instead(lambda word: f"{word} {word}"),
    "left out": _instead(lambda _: ""),
    "a letter": _instead(lambda word: word[:-1] + ("e" if word[-1] != "e" else "y")),
    "a letter more": _instead(lambda word: f"{word}s"),
    "turned round": _instead(lambda word: f"{word[::-1]}q"),
    "[not]": _instead(lambda word: f"{word} [not]"),
    "[a number]": _instead(lambda word: f"{word} [55 percent]"),
    "a number put in": _instead(lambda word: f"{word} 77"),
    "or": _instead(lambda word: f"{word} or bananas"),
    "first": lambda words, _: ["Bananas", *words],
    "last": lambda words, _: [*words[:-1], words[-1].rstrip(".!?;:,"), "fraudulently."],
    "a digit": _number(lambda word: str((int(word[0]) + 1) % 10) + word[1:]),
    "a digit more": _number(lambda word: f"7{word}"),
    "a sign": _number(lambda word: f"-{word}"),
    "a currency": _number(lambda word: f"¥{word}"),
    "a percent sign": _number(lambda word: word.rstrip(".,") + "%"),
    "a scale": _number(lambda word: word.rstrip(".,") + " million"),
    "a point": _number(lambda word: f".{word}"),
    "a power": _number(lambda word: word.rstrip(".,") + "^3"),
    "a range": _number(lambda word: word.rstrip(".,") + "–9999"),
}


def _wrapped(before: str, after: str) -> Edit:
    return _instead(lambda word: f"{before}{word}{after}")


def _all(changed: Callable[[str], str]) -> Edit:
    return lambda words, _: [changed(" ".join(words))]


HARMLESS_EDITS: dict[str, Edit] = {
    "bold": _wrapped("**", "**"),
    "italics": _wrapped("*", "*"),
    "underlined": _wrapped("_", "_"),
    "code": _wrapped("`", "`"),
    "a tag": _wrapped('<em class="x">', "</em>"),
    "a link": _wrapped("[", "](https://example.org/a_b?c=d)"),
    "quotation marks": _wrapped("“", "”"),
    "a footnote": _wrapped("", "[12]"),
    "a raised mark": _wrapped("", "¹"),
    "a dagger": _wrapped("", "†"),
    "an owned name": _wrapped("", "®"),
    "sic": _wrapped("", " [sic]"),
    "the same in brackets": _wrapped("[", "]"),
    "soft hyphens": _instead("\u00ad".join),
    "no width": _instead("\u200b".join),
    "broken": _instead(lambda word: f"{word[:2]}-\n{word[2:]}"),
    "blanks": _all(lambda text: text.replace(" ", " \u00a0 ")),
    "lines": _all(lambda text: text.replace(" ", "\n")),
    "quoted": _all(lambda text: f"“‘{text}’”"),
    "heading": _all(lambda text: f"## {text}"),
    "item": _all(lambda text: f"- {text}"),
    "table": _all(lambda text: f"| {text} |"),
    "dots before": _all(lambda text: f"[…] {text}"),
    "dots behind": _all(lambda text: f"{text.rstrip('.!?;:,')} ..."),
    "another end": _all(lambda text: f"{text.rstrip('.!?;:,')};"),
    "entities": _all(lambda text: text.replace("'", "&#39;").replace(" ", "&nbsp;")),
    "emphasis": _all(lambda text: f"{text} [emphasis added]"),
    "marker": _all(lambda text: f"{text}【3†source】"),
}


@cache
def _corpus() -> list[tuple[str, SearchableText]]:
    """Sentences of real documents, in plain words and numbers, with the document."""
    found: list[tuple[str, SearchableText]] = []
    for path in ("html/markitdown__test_wikipedia.html", "docx/markitdown__test.docx", "pdf/ALCE__ALCE.pdf"):
        text = load(need_cases() / "corpus" / path).text
        source = SearchableText(text)
        plain = re.findall(r"(?<=[.!?]\s)[A-Z][A-Za-z0-9,;:%$’' \n-]{50,250}\.(?=\s)", text)
        found += [(" ".join(sentence.split()), source) for sentence in plain]
    return found


def _edited(sentence: str, edit: Edit, random: Random) -> str:
    words = sentence.split()
    changed = " ".join(" ".join(edit(words, random)).split(" "))
    assume(changed != sentence)
    return changed


@pytest.mark.parametrize("edit", HARMFUL_EDITS.values(), ids=HARMFUL_EDITS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(OWN), st.randoms())
def test_any_sentence_with_a_harmful_edit(edit: Edit, sentence: str, random: Random) -> None:
    finding = judge_quote(_edited(sentence, edit, random), _source(sentence))
    assert finding.status in ("altered", "missed"), finding


@pytest.mark.parametrize("edit", HARMLESS_EDITS.values(), ids=HARMLESS_EDITS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(OWN), st.randoms())
def test_any_sentence_with_a_harmless_edit(edit: Edit, sentence: str, random: Random) -> None:
    finding = judge_quote(_edited(sentence, edit, random), _source(sentence))
    assert finding.status == "verified", finding


@pytest.mark.parametrize("edit", HARMFUL_EDITS.values(), ids=HARMFUL_EDITS)
def test_sentences_of_the_corpus_with_a_harmful_edit(edit: Edit) -> None:
    _check_corpus(edit, harmful=True)


@pytest.mark.parametrize("edit", HARMLESS_EDITS.values(), ids=HARMLESS_EDITS)
def test_sentences_of_the_corpus_with_a_harmless_edit(edit: Edit) -> None:
    _check_corpus(edit, harmful=False)


def _check_corpus(edit: Edit, *, harmful: bool) -> None:
    @settings(max_examples=15, suppress_health_check=[HealthCheck.filter_too_much])
    @given(st.sampled_from(_corpus()), st.randoms())
    def check(sentence: tuple[str, SearchableText], random: Random) -> None:
        finding = judge_quote(_edited(sentence[0], edit, random), sentence[1])
        assert (finding.status in ("altered", "missed")) if harmful else finding.status == "verified", finding

    check()
