//! The screens.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::flame;
use super::look::Look;
use super::state::{Choice, Order, Screen, State};
use crate::explore::KERNEL;
use crate::report::render::amount;

/// Cells of a share's bar.
const BAR: usize = 10;

const KEYS: [(&str, &str); 11] = [
    (
        "1 2 3 4, Tab",
        "functions, callers and callees, flame graph, filters",
    ),
    ("arrows, hjkl", "move; PgUp PgDn Home End in lists"),
    (
        "Enter",
        "callers and callees of the line; zoom into the box; choose",
    ),
    ("Backspace", "back to where you were"),
    ("Esc", "zoom out by one box; end the search"),
    ("/", "search names"),
    ("s", "sort by self, total, name"),
    ("Space, c", "choose in the filters; choose all again"),
    (
        "[ ] { } , .",
        "time: less at the start, at the end; more; earlier, later",
    ),
    ("?", "these keys"),
    ("q, Ctrl-C", "leave"),
];

/// Draw everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State<'_, '_>, look: Look) {
    let lines = [
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ];
    let [head, tabs, body, foot] = Layout::vertical(lines).areas(frame.area());
    frame.render_widget(heading(state, look), head);
    frame.render_widget(tab_line(state, look), tabs);
    match state.screen {
        Screen::Functions => functions(frame, state, look, body),
        Screen::Callers => callers(frame, state, look, body),
        Screen::Flame => flame_graph(frame, state, look, body),
        Screen::Filters => filters(frame, state, look, body),
    }
    frame.render_widget(foot_line(state, look), foot);
    if state.help {
        help(frame, look);
    }
}

fn heading(state: &State<'_, '_>, look: Look) -> Paragraph<'static> {
    let unit = state.data.profile.unit();
    let mut spans = vec![
        Span::styled(state.title.clone(), look.strong()),
        Span::raw(format!(
            "  {} of {}",
            amount(state.view.total(), unit),
            state.data.event_names()
        )),
    ];
    if !state.selection.is_all() {
        spans.push(Span::styled("  (filtered: 4)", look.found()));
    }
    if let Some((from, to)) = state.selection.slots {
        let time = |slot: u32| amount(u64::from(slot).saturating_mul(state.data.slot_ns), "ns");
        let text = format!("  {}..{}", time(from), time(to));
        spans.push(Span::styled(text, look.found()));
    }
    Paragraph::new(Line::from(spans))
}

fn tab_line(state: &State<'_, '_>, look: Look) -> Paragraph<'static> {
    let mut spans = Vec::new();
    for (number, screen) in (1..).zip(Screen::ALL) {
        let style = if screen == state.screen {
            Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
        } else {
            look.soft()
        };
        spans.push(Span::styled(format!(" {number} {} ", screen.name()), style));
        spans.push(Span::raw(" "));
    }
    Paragraph::new(Line::from(spans))
}

fn foot_line(state: &State<'_, '_>, look: Look) -> Paragraph<'static> {
    let line = if state.typing {
        Line::from(vec![
            Span::styled("/", look.found()),
            Span::raw(state.search.clone()),
            Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
            Span::styled("  Enter keeps it, Esc ends it", look.soft()),
        ])
    } else if state.search.is_empty() {
        Line::styled(
            "? keys   / search   Enter open   Backspace back   q leave",
            look.soft(),
        )
    } else {
        let found = format!("/{}  ", state.search);
        Line::from(vec![
            Span::styled(found, look.found()),
            Span::styled("Esc ends the search", look.soft()),
        ])
    };
    Paragraph::new(line)
}

/// `part` of `whole` in percent.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// Lines from which `at` is in sight, and the style of each.
fn sight(at: usize, count: usize, height: u16) -> std::ops::Range<usize> {
    let height = usize::from(height).max(1);
    let first = (at + height / 2)
        .saturating_sub(height - 1)
        .min(count.saturating_sub(height));
    first..count.min(first + height)
}

fn line_style(here: bool) -> Style {
    if here {
        Style::new().add_modifier(Modifier::REVERSED)
    } else {
        Style::new()
    }
}

/// Name and module, with what tells the kernel.
fn label(state: &State<'_, '_>, function: Option<u32>, look: Look) -> [Span<'static>; 3] {
    let (name, module, flags) = state.named(function);
    let mark = if flags & KERNEL != 0 { "k " } else { "  " };
    let module = module.rsplit('/').next().unwrap_or(module);
    let found =
        !state.search.is_empty() && function.is_some_and(|function| state.matches(function));
    let style = if found { look.found() } else { Style::new() };
    [
        Span::styled(mark, look.strong()),
        Span::styled(name.to_owned(), style),
        Span::styled(format!("  {module}"), look.soft()),
    ]
}

fn functions(frame: &mut Frame<'_>, state: &State<'_, '_>, look: Look, area: Rect) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let sorted = |order: Order, name: &str| {
        let mark = if state.order == order {
            if look.unicode { "↓" } else { "v" }
        } else {
            " "
        };
        format!("{name}{mark}")
    };
    let title = format!(
        "{:>8} {:>11} {:>9} {:>11}  {}",
        sorted(Order::Own, "self"),
        "",
        sorted(Order::Total, "total"),
        "",
        sorted(Order::Name, "function")
    );
    frame.render_widget(Paragraph::new(title).style(look.strong()), head);
    let (whole, unit) = (state.view.total(), state.data.profile.unit());
    let at = state.at[Screen::Functions as usize];
    let range = sight(at, state.rows.len(), body.height);
    let lines: Vec<Line<'_>> = range
        .map(|line| {
            let function = state.rows.get(line).copied();
            let sum = function
                .and_then(|function| state.sums.get(function as usize))
                .copied()
                .unwrap_or_default();
            let numbers = format!(
                "{:>7.2}% {:>11} {:>8.2}% {:>11}  ",
                percent(sum.own, whole),
                amount(sum.own, unit),
                percent(sum.total, whole),
                amount(sum.total, unit)
            );
            let spans = std::iter::once(Span::raw(numbers)).chain(label(state, function, look));
            Line::from(spans.collect::<Vec<_>>()).style(line_style(line == at))
        })
        .collect();
    let empty = if lines.is_empty() {
        "No function: Esc ends the search, c in the filters chooses all."
    } else {
        ""
    };
    frame.render_widget(Paragraph::new(empty), body);
    frame.render_widget(Paragraph::new(lines), body);
}

fn callers(frame: &mut Frame<'_>, state: &State<'_, '_>, look: Look, area: Rect) {
    let (callers, callees) = (&state.neighbours.callers, &state.neighbours.callees);
    let sum = state
        .sums
        .get(state.function as usize)
        .copied()
        .unwrap_or_default();
    let unit = state.data.profile.unit();
    let at = state.at[Screen::Callers as usize];
    let row = |line: usize, &(function, weight): &(Option<u32>, u64)| {
        let part = percent(weight, sum.total);
        let bar = look.bar(part / 100.0, BAR);
        let numbers = format!("{part:>8.2}% {:>11}  {bar} ", amount(weight, unit));
        let spans = std::iter::once(Span::raw(numbers)).chain(label(state, function, look));
        Line::from(spans.collect::<Vec<_>>()).style(line_style(line == at))
    };
    let mut lines = vec![Line::styled("called by", look.soft())];
    lines.extend(
        callers
            .iter()
            .enumerate()
            .map(|(line, caller)| row(line, caller)),
    );
    let mut middle = vec![Span::styled(
        format!(
            "{:>9} {:>11}  self {:<11}",
            "",
            amount(sum.total, unit),
            amount(sum.own, unit)
        ),
        look.strong(),
    )];
    middle.extend(label(state, Some(state.function), look));
    lines.push(Line::from(middle).style(Style::new().add_modifier(Modifier::BOLD)));
    lines.push(Line::styled("calls", look.soft()));
    lines.extend(
        callees
            .iter()
            .enumerate()
            .map(|(line, callee)| row(callers.len() + line, callee)),
    );
    if callees.is_empty() {
        lines.push(Line::styled("          nothing", look.soft()));
    }
    // Headings push the chosen line down by one above the middle, by three below it.
    let chosen = at + if at < callers.len() { 1 } else { 3 };
    let range = sight(chosen, lines.len(), area.height);
    let lines: Vec<Line<'_>> = lines
        .into_iter()
        .skip(range.start)
        .take(range.len())
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn flame_graph(frame: &mut Frame<'_>, state: &State<'_, '_>, look: Look, area: Rect) {
    let [body, facts] = Layout::vertical([Constraint::Min(1), Constraint::Length(2)]).areas(area);
    flame::draw(state, look, body, frame.buffer_mut());
    let shown = state.view.get(state.chosen);
    let (name, _) = flame::name(state, &shown);
    let module = state
        .data
        .frames
        .get(shown.frame as usize)
        .map_or("", |frame| frame.module);
    let unit = state.data.profile.unit();
    let numbers = format!(
        "{} {:.2}% of all, {} in itself",
        amount(shown.total, unit),
        percent(shown.total, state.view.total()),
        amount(shown.own, unit)
    );
    let lines = vec![
        Line::from(vec![
            Span::styled(name.to_owned(), look.strong()),
            Span::styled(format!("  {module}"), look.soft()),
        ]),
        Line::raw(numbers),
    ];
    frame.render_widget(Paragraph::new(lines), facts);
}

fn filters(frame: &mut Frame<'_>, state: &State<'_, '_>, look: Look, area: Rect) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let text = "Space chooses; of each kind what is chosen counts, nothing chosen is all. c chooses all again.";
    frame.render_widget(Paragraph::new(text).style(look.soft()), head);
    let whole: u64 = state
        .data
        .cells
        .iter()
        .map(|cell| cell.weight)
        .fold(0, u64::saturating_add);
    let at = state.at[Screen::Filters as usize];
    let range = sight(at, state.choices.len(), body.height);
    let lines: Vec<Line<'_>> = range
        .filter_map(|line| {
            let &(choice, weight) = state.choices.get(line)?;
            let tick = if state.is_chosen(choice) {
                "[x]"
            } else {
                "[ ]"
            };
            let part = percent(weight, whole);
            let text = format!(
                "{tick} {part:>7.2}%  {}  {}",
                look.bar(part / 100.0, BAR),
                choice_label(state, choice)
            );
            Some(Line::raw(text).style(line_style(line == at)))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), body);
}

fn choice_label(state: &State<'_, '_>, choice: Choice) -> String {
    let threads = &state.data.threads;
    let several = state.data.profile.archives.len() > 1;
    let host = |archive: u32| {
        if several {
            format!(" of archive {}", archive + 1)
        } else {
            String::new()
        }
    };
    match choice {
        Choice::Process(archive, pid) => {
            // A process that executed other programs had several names: the one with the most weight stands for it.
            let of_process = |thread: u32| {
                let facts = threads.get(thread as usize)?;
                ((facts.archive, facts.pid) == (archive, pid)).then_some(facts)
            };
            let names = state
                .choices
                .iter()
                .filter_map(|&(choice, weight)| match choice {
                    Choice::Thread(thread) => of_process(thread).map(|facts| (weight, facts)),
                    _ => None,
                });
            let heaviest = names.max_by_key(|(weight, _)| *weight);
            let name = heaviest.map_or("", |(_, facts)| facts.process_comm.as_str());
            format!("process  {name} (pid {pid}{})", host(archive))
        }
        Choice::Thread(thread) => threads
            .get(thread as usize)
            .map_or_else(String::new, |thread| {
                format!(
                    "thread   {} (tid {}, pid {}{})",
                    thread.comm,
                    thread.tid,
                    thread.pid,
                    host(thread.archive)
                )
            }),
        Choice::Cpu(cpu) => format!("CPU      {cpu}"),
    }
}

fn help(frame: &mut Frame<'_>, look: Look) {
    let [_, middle, _] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(13),
        Constraint::Fill(1),
    ])
    .areas(frame.area());
    let [_, place, _] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Length(76),
        Constraint::Fill(1),
    ])
    .areas(middle);
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(keys, text)| {
            Line::from(vec![
                Span::styled(format!(" {keys:<14}"), look.strong()),
                Span::raw(*text),
            ])
        })
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).block(Block::bordered().title(" Keys ")),
        place,
    );
}
