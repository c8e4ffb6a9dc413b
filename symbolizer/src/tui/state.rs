//! What is shown and what a key does to it. Knows no terminal.

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::span;
use crate::explore::{Explored, FunctionSum, Functions, KERNEL, Neighbours, Selection, View};

/// Lines that a page key goes.
const PAGE: isize = 15;
/// Steps that can be taken back.
const MAX_HISTORY: usize = 1000;

/// A key that does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Char(char),
    /// Up, down, left, right: lines, or -1 and 1 to the side.
    Move(isize, isize),
    /// To the first or the last line.
    First,
    /// To the last line.
    Last,
    /// Enter.
    Enter,
    /// Back.
    Backspace,
    /// Escape.
    Escape,
    /// To the next screen, or back.
    Tab(bool),
    /// Leave at once.
    Interrupt,
}

impl Key {
    /// The key of a terminal's event.
    pub fn of(event: &KeyEvent) -> Option<Self> {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        Some(match event.code {
            KeyCode::Char('c' | 'd') if control => Self::Interrupt,
            KeyCode::Char(_) if control || event.modifiers.contains(KeyModifiers::ALT) => {
                return None;
            }
            KeyCode::Char(letter) => Self::Char(letter),
            KeyCode::Up => Self::Move(-1, 0),
            KeyCode::Down => Self::Move(1, 0),
            KeyCode::PageUp => Self::Move(-PAGE, 0),
            KeyCode::PageDown => Self::Move(PAGE, 0),
            KeyCode::Left => Self::Move(0, -1),
            KeyCode::Right => Self::Move(0, 1),
            KeyCode::Home => Self::First,
            KeyCode::End => Self::Last,
            KeyCode::Enter => Self::Enter,
            KeyCode::Backspace => Self::Backspace,
            KeyCode::Esc => Self::Escape,
            KeyCode::Tab => Self::Tab(true),
            KeyCode::BackTab => Self::Tab(false),
            _ => return None,
        })
    }
}

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// The table of functions.
    Functions,
    /// Callers and callees of one of them.
    Callers,
    /// The flame graph.
    Flame,
    /// Processes, threads and CPUs to choose.
    Filters,
}

impl Screen {
    pub(super) const ALL: [Self; 4] = [Self::Functions, Self::Callers, Self::Flame, Self::Filters];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Functions => "Functions",
            Self::Callers => "Callers & callees",
            Self::Flame => "Flame graph",
            Self::Filters => "Filters",
        }
    }
}

/// Order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Own,
    Total,
    Name,
}

/// A line of the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Process(u32, u32),
    Thread(u32),
    Cpu(u32),
}

/// A place that can be gone back to.
#[derive(Clone, Debug)]
struct Place {
    screen: Screen,
    function: u32,
    zoom: Vec<u32>,
}

/// Everything that is shown.
#[derive(Debug)]
pub struct State<'d, 'p> {
    pub(super) data: &'d Explored<'p>,
    pub(super) title: String,
    pub(super) screen: Screen,
    pub(super) functions: Functions,
    pub(super) view: View,
    pub(super) sums: Vec<FunctionSum>,
    /// Functions of the table, in its order.
    pub(super) rows: Vec<u32>,
    pub(super) order: Order,
    /// The line of each screen that is chosen.
    pub(super) at: [usize; 4],
    /// Function in the middle of callers and callees.
    pub(super) function: u32,
    pub(super) neighbours: Neighbours,
    /// Frames from the root to the box that is zoomed into.
    pub(super) zoom: Vec<u32>,
    /// The box that is chosen.
    pub(super) chosen: u32,
    pub(super) selection: Selection,
    pub(super) choices: Vec<(Choice, u64)>,
    pub(super) search: String,
    pub(super) typing: bool,
    pub(super) help: bool,
    history: Vec<Place>,
    ended: bool,
}

impl<'d, 'p> State<'d, 'p> {
    /// The first look at `data`.
    pub fn new(data: &'d Explored<'p>, title: &str) -> Self {
        let mut state = Self {
            data,
            title: title.to_owned(),
            screen: Screen::Functions,
            functions: Functions::of(data),
            view: View::default(),
            sums: Vec::new(),
            rows: Vec::new(),
            order: Order::Own,
            at: [0; 4],
            function: 0,
            neighbours: Neighbours::default(),
            zoom: Vec::new(),
            chosen: 0,
            selection: Selection::default(),
            choices: Vec::new(),
            search: String::new(),
            typing: false,
            help: false,
            history: Vec::new(),
            ended: false,
        };
        state.select();
        state.function = state.rows.first().copied().unwrap_or(0);
        state.neighbours = state.functions.neighbours(&state.view, state.function);
        state
    }

    /// Whether it was left.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Look at what is selected anew.
    fn select(&mut self) {
        self.view = View::of(self.data, &self.selection);
        self.sums = self.functions.sums(&self.view);
        self.neighbours = self.functions.neighbours(&self.view, self.function);
        self.chosen = self.view.follow(&self.zoom);
        self.choices = self.weigh();
        self.arrange();
    }

    /// Put the table's rows into order.
    fn arrange(&mut self) {
        let count = u32::try_from(self.sums.len()).unwrap_or(u32::MAX);
        let sum = |&function: &u32| {
            self.sums
                .get(function as usize)
                .copied()
                .unwrap_or_default()
        };
        let shown = |function: &u32| sum(function).total > 0 && self.matches(*function);
        let mut rows: Vec<u32> = (0..count).filter(shown).collect();
        let down = |weight: u64| u64::MAX - weight;
        match self.order {
            Order::Own => rows.sort_by_key(|row| (down(sum(row).own), down(sum(row).total), *row)),
            Order::Total => {
                rows.sort_by_key(|row| (down(sum(row).total), down(sum(row).own), *row))
            }
            Order::Name => {}
        }
        self.rows = rows;
        self.keep_line(Screen::Functions);
    }

    /// Processes, threads and CPUs with their weights, whatever is selected.
    fn weigh(&self) -> Vec<(Choice, u64)> {
        let mut sums = BTreeMap::new();
        let mut add = |kind: u8, key: (u32, u32), choice: Choice, weight: u64| {
            let entry: &mut (Choice, u64) = sums.entry((kind, key)).or_insert((choice, 0));
            entry.1 = entry.1.saturating_add(weight);
        };
        for cell in &self.data.cells {
            let thread = cell.thread.0;
            let facts = self.data.threads.get(thread as usize);
            let (archive, pid) = facts.map_or((0, 0), |facts| (facts.archive, facts.pid));
            add(
                0,
                (archive, pid),
                Choice::Process(archive, pid),
                cell.weight,
            );
            add(1, (thread, 0), Choice::Thread(thread), cell.weight);
            add(2, (cell.cpu, 0), Choice::Cpu(cell.cpu), cell.weight);
        }
        let mut choices: Vec<_> = sums.into_iter().collect();
        choices.sort_by_key(|&((kind, key), (_, weight))| (kind, u64::MAX - weight, key));
        choices.into_iter().map(|(_, choice)| choice).collect()
    }

    pub(super) fn is_chosen(&self, choice: Choice) -> bool {
        match choice {
            Choice::Process(archive, pid) => self.selection.processes.contains(&(archive, pid)),
            Choice::Thread(thread) => self.selection.threads.contains(&thread),
            Choice::Cpu(cpu) => self.selection.cpus.contains(&cpu),
        }
    }

    fn toggle(&mut self, choice: Choice) {
        let chosen = self.is_chosen(choice);
        let Selection {
            processes,
            threads,
            cpus,
            ..
        } = &mut self.selection;
        match (choice, chosen) {
            (Choice::Process(archive, pid), true) => processes.remove(&(archive, pid)),
            (Choice::Process(archive, pid), false) => processes.insert((archive, pid)),
            (Choice::Thread(thread), true) => threads.remove(&thread),
            (Choice::Thread(thread), false) => threads.insert(thread),
            (Choice::Cpu(cpu), true) => cpus.remove(&cpu),
            (Choice::Cpu(cpu), false) => cpus.insert(cpu),
        };
        self.select();
    }

    /// Name, module and flags of a function.
    pub(super) fn named(&self, function: Option<u32>) -> (&'p str, &'p str, u8) {
        let frame = function.and_then(|function| self.functions.frame.get(function as usize));
        let shown = frame.and_then(|&frame| self.data.frames.get(frame as usize));
        shown.map_or(("[no caller]", "", 0), |frame| {
            (frame.name, frame.module, frame.flags & KERNEL)
        })
    }

    /// Whether a function's name holds what is searched for.
    pub(super) fn matches(&self, function: u32) -> bool {
        self.search.is_empty() || {
            let (name, _, _) = self.named(Some(function));
            name.to_lowercase().contains(&self.search.to_lowercase())
        }
    }

    /// The lines of callers, then callees.
    pub(super) fn neighbour(&self, line: usize) -> Option<u32> {
        let Neighbours { callers, callees } = &self.neighbours;
        callers
            .iter()
            .chain(callees)
            .nth(line)
            .and_then(|&(function, _)| function)
    }

    fn lines(&self, screen: Screen) -> usize {
        match screen {
            Screen::Functions => self.rows.len(),
            Screen::Callers => self.neighbours.callers.len() + self.neighbours.callees.len(),
            Screen::Flame => 0,
            Screen::Filters => self.choices.len(),
        }
    }

    fn keep_line(&mut self, screen: Screen) {
        let last = self.lines(screen).saturating_sub(1);
        let at = &mut self.at[screen as usize];
        *at = (*at).min(last);
    }

    /// Do what `key` says.
    pub fn press(&mut self, key: Key) {
        if key == Key::Interrupt {
            self.ended = true;
        } else if self.typing {
            self.type_key(key);
        } else if self.help {
            self.help = false;
        } else {
            self.do_key(key);
        }
    }

    fn type_key(&mut self, key: Key) {
        match key {
            Key::Char(letter) => self.search.push(letter),
            Key::Backspace => {
                self.search.pop();
            }
            Key::Escape => {
                self.search.clear();
                self.typing = false;
            }
            Key::Enter => self.typing = false,
            _ => return,
        }
        self.at[Screen::Functions as usize] = 0;
        self.arrange();
    }

    fn do_key(&mut self, key: Key) {
        match key {
            Key::Char('q') => self.ended = true,
            Key::Char('/') => self.typing = true,
            Key::Char('?') => self.help = true,
            Key::Char(digit @ '1'..='4') => {
                let index = usize::from(digit as u8 - b'1');
                self.screen = Screen::ALL.get(index).copied().unwrap_or(self.screen);
            }
            Key::Char('s') => self.sort(),
            Key::Char(letter) if span::is_key(letter) => {
                self.selection.slots = span::moved(self.selection.slots, self.slots(), letter);
                self.select();
            }
            Key::Char('c') => {
                self.selection = Selection::default();
                self.select();
            }
            Key::Char(' ') if self.screen == Screen::Filters => self.enter(),
            Key::Tab(forward) => {
                let step = if forward { 1 } else { 3 };
                self.screen = Screen::ALL[(self.screen as usize + step) % 4];
            }
            Key::Char('j') => self.go(1, 0),
            Key::Char('k') => self.go(-1, 0),
            Key::Char('h') => self.go(0, -1),
            Key::Char('l') => self.go(0, 1),
            Key::Move(down, right) => self.go(down, right),
            Key::First => self.go(isize::MIN / 2, 0),
            Key::Last => self.go(isize::MAX / 2, 0),
            Key::Enter => self.enter(),
            Key::Escape => self.escape(),
            Key::Backspace => self.back(),
            _ => {}
        }
    }

    /// Slots of time that there are.
    fn slots(&self) -> u32 {
        let last = self.data.cells.last();
        last.map_or(0, |cell| cell.slot.saturating_add(1))
    }

    fn sort(&mut self) {
        self.order = match self.order {
            Order::Own => Order::Total,
            Order::Total => Order::Name,
            Order::Name => Order::Own,
        };
        self.arrange();
    }

    fn go(&mut self, down: isize, right: isize) {
        if self.screen == Screen::Flame {
            self.go_to_box(down, right);
            return;
        }
        let last = self.lines(self.screen).saturating_sub(1);
        let at = &mut self.at[self.screen as usize];
        *at = at.saturating_add_signed(down).min(last);
    }

    /// In the graph: down to the heaviest box, up to the one it stands on, to the side.
    fn go_to_box(&mut self, down: isize, right: isize) {
        let top = self.view.follow(&self.zoom);
        if down > 0 {
            let children = self.view.children(self.chosen);
            let heaviest = children
                .into_iter()
                .max_by_key(|&child| (self.view.get(child).total, u32::MAX - child));
            self.chosen = heaviest.unwrap_or(self.chosen);
        } else if down < 0 {
            self.chosen = if down < -1 {
                top
            } else {
                self.view.parent(self.chosen).unwrap_or(0)
            };
        } else if let Some(parent) = self.view.parent(self.chosen) {
            let siblings = self.view.children(parent);
            let place = siblings.iter().position(|&sibling| sibling == self.chosen);
            let next = place.and_then(|place| siblings.get(place.saturating_add_signed(right)));
            // What is beside the box that is zoomed into is out of sight.
            self.chosen = next
                .copied()
                .filter(|_| self.chosen != top)
                .unwrap_or(self.chosen);
        }
    }

    fn remember(&mut self) {
        if self.history.len() == MAX_HISTORY {
            self.history.remove(0);
        }
        self.history.push(Place {
            screen: self.screen,
            function: self.function,
            zoom: self.zoom.clone(),
        });
    }

    fn back(&mut self) {
        if let Some(place) = self.history.pop() {
            self.screen = place.screen;
            self.centre(place.function);
            self.zoom = place.zoom;
            self.chosen = self.view.follow(&self.zoom);
        }
    }

    fn centre(&mut self, function: u32) {
        self.function = function;
        self.neighbours = self.functions.neighbours(&self.view, function);
        self.at[Screen::Callers as usize] = 0;
    }

    fn enter(&mut self) {
        let line = self.at[self.screen as usize];
        match self.screen {
            Screen::Functions | Screen::Callers => {
                let row = match self.screen {
                    Screen::Functions => self.rows.get(line).copied(),
                    _ => self.neighbour(line),
                };
                if let Some(function) = row {
                    self.remember();
                    self.screen = Screen::Callers;
                    self.centre(function);
                }
            }
            Screen::Flame => {
                self.remember();
                self.zoom = self.view.path(self.chosen);
            }
            Screen::Filters => {
                if let Some(&(choice, _)) = self.choices.get(line) {
                    self.toggle(choice);
                }
            }
        }
    }

    /// Out of the zoom by one box; elsewhere the search ends.
    fn escape(&mut self) {
        if self.screen == Screen::Flame && !self.zoom.is_empty() {
            self.remember();
            self.zoom.pop();
            self.chosen = self.view.follow(&self.zoom);
        } else {
            self.search.clear();
            self.arrange();
        }
    }
}
