//! The distinct frames and stacks of one recording, with IDs made of what they are.
//!
//! A frame is a code address and has no name, so that other names make no other frames.

use foldhash::HashMap;
use parquet::data_type::{ByteArray, FixedLenByteArray};

use super::context::{Context, FrameRow, ModuleRow, StackRow, SymbolRow, id_bytes, signed32, text};
use super::ids::{Id, IdBuilder, of_module};
use crate::export::exporter::{ExportSample, Halves};
use crate::symbolized::{SymbolizedFrame, SymbolizedProfile};
use crate::text::StringId;

/// No frame yet.
const NONE: u32 = u32::MAX;

/// What a frame stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    /// A code address, an index into the profile's places.
    Place(u32),
    /// The end of a stack; the frame that says why.
    End(u32),
}

/// Frames and stacks by content.
#[derive(Debug, Default)]
pub(super) struct Frames {
    recording: Id,
    standing: Vec<Standing>,
    /// For each place its frame.
    of_place: Vec<u32>,
    of_end: HashMap<u32, u32>,
    of_id: HashMap<Id, u32>,
    /// How many frames in no file have this address.
    of_address: HashMap<u64, u64>,
    of_halves: HashMap<Halves, u32>,
    of_stack: HashMap<Id, u32>,
    modules: HashMap<u32, Id>,
    texts: HashMap<StringId, ByteArray>,
}

impl Frames {
    /// Those of a recording.
    pub(super) fn of(recording: Id) -> Self {
        Self {
            recording,
            ..Self::default()
        }
    }

    /// The number of a sample's stack, and its row where it is new.
    pub(super) fn stack(
        &mut self,
        profile: &SymbolizedProfile,
        sample: &ExportSample<'_>,
        context: &mut Context,
    ) -> (u32, Option<StackRow>) {
        if let Some(&known) = self.of_halves.get(&sample.halves) {
            return (known, None);
        }
        let frames: Vec<u32> = sample
            .chains()
            .filter_map(|chain| chain.first())
            .map(|first| match first.place {
                Some(place) => self.place(profile, place, context),
                None => self.end(profile, first.named, context),
            })
            .collect();
        let is_truncated = sample.halves.is_truncated();
        let ids = frames
            .iter()
            .filter_map(|&frame| context.frames.get(frame as usize));
        let id = IdBuilder::new("stack").number(is_truncated.into());
        let id = ids.fold(id, |id, frame| id.bytes(frame.data())).id();
        let next = u32::try_from(context.stacks.len()).unwrap_or(NONE);
        let stack = *self.of_stack.entry(id).or_insert(next);
        self.of_halves.insert(sample.halves, stack);
        if stack != next {
            return (stack, None);
        }
        context.stacks.push(id_bytes(&id));
        let row = StackRow {
            stack,
            is_truncated,
            frames,
        };
        (stack, Some(row))
    }

    /// The frame of a place.
    fn place(&mut self, profile: &SymbolizedProfile, place: u32, context: &mut Context) -> u32 {
        self.of_place.resize(profile.places().len(), NONE);
        if let Some(&known) = self.of_place.get(place as usize)
            && known != NONE
        {
            return known;
        }
        let code = profile.places().get(place as usize);
        let in_file = code.and_then(|code| Some((code.module?, code.offset)));
        let id = match in_file {
            Some((module, offset)) => {
                let module = self.module(profile, module);
                IdBuilder::new("frame").bytes(&module).number(offset)
            }
            None => {
                let address = profile.raw_address(place);
                let earlier = self.of_address.entry(address).or_default();
                *earlier += 1;
                let id = IdBuilder::new("address").bytes(&self.recording);
                id.number(address).number(*earlier)
            }
        };
        let frame = self.add(id.id(), Standing::Place(place), context);
        if let Some(known) = self.of_place.get_mut(place as usize) {
            *known = frame;
        }
        frame
    }

    fn end(&mut self, profile: &SymbolizedProfile, named: u32, context: &mut Context) -> u32 {
        if let Some(&known) = self.of_end.get(&named) {
            return known;
        }
        let why = profile.text(profile.frame(named).name);
        let id = IdBuilder::new("end").text(why).id();
        let frame = self.add(id, Standing::End(named), context);
        self.of_end.insert(named, frame);
        frame
    }

    fn add(&mut self, id: Id, standing: Standing, context: &mut Context) -> u32 {
        let next = u32::try_from(context.frames.len()).unwrap_or(NONE);
        let frame = *self.of_id.entry(id).or_insert(next);
        if frame == next {
            context.frames.push(id_bytes(&id));
            self.standing.push(standing);
        }
        frame
    }

    fn module(&mut self, profile: &SymbolizedProfile, module: u32) -> Id {
        let Self {
            modules, recording, ..
        } = self;
        *modules.entry(module).or_insert_with(|| {
            let facts = profile.modules.get(module as usize);
            facts.map_or(Id::default(), |facts| of_module(facts, recording))
        })
    }

    /// How many frames there are.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.standing.len()).unwrap_or(NONE)
    }

    /// Row of a frame.
    pub(super) fn row(&mut self, profile: &SymbolizedProfile, frame: u32) -> FrameRow {
        let mut row = FrameRow {
            frame,
            kind: "end",
            module: None,
            build_id: None,
            offset: None,
        };
        if let Some(&Standing::Place(place)) = self.standing.get(frame as usize) {
            let outer = profile.chain_at(place).last();
            let is_kernel = outer.is_some_and(|&outer| profile.frame(outer).kernel);
            row.kind = if is_kernel { "kernel" } else { "user" };
            let code = profile.places().get(place as usize);
            let module = code.and_then(|code| code.module);
            row.module = module.map(|module| id_bytes(&self.module(profile, module)));
            let facts = module.and_then(|module| profile.modules.get(module as usize));
            let build_id = facts.and_then(|facts| facts.build_id.as_deref());
            row.build_id = build_id.map(text);
            row.offset = match module {
                Some(_) => code.map(|code| code.offset.cast_signed()),
                None => Some(profile.raw_address(place).cast_signed()),
            };
        }
        row
    }

    /// Rows of all modules with frames, in the order in which they were met.
    pub(super) fn modules(&mut self, profile: &SymbolizedProfile) -> Vec<ModuleRow> {
        let mut rows: Vec<ModuleRow> = Vec::new();
        let mut seen = HashMap::default();
        for standing in self.standing.clone() {
            let Standing::Place(place) = standing else {
                continue;
            };
            let code = profile.places().get(place as usize);
            let Some(module) = code.and_then(|code| code.module) else {
                continue;
            };
            let id = self.module(profile, module);
            let facts = profile.modules.get(module as usize);
            if let Some(facts) = facts
                && seen.insert(id, ()).is_none()
            {
                rows.push(ModuleRow {
                    module: id_bytes(&id),
                    build_id: facts.build_id.as_deref().map(text),
                    hash: facts.hash.as_deref().map(text),
                    path: text(&facts.path),
                });
            }
        }
        rows
    }

    /// Add frames that stand for others where no names are looked for.
    ///
    /// What a signal interrupted is known as such only where the program's file is at hand: elsewhere it is taken for
    /// a caller, whose call is a byte before. So the frame there needs its names, too.
    pub(super) fn add_twins(&mut self, profile: &SymbolizedProfile, context: &mut Context) {
        let places = (0u32..).zip(profile.places());
        let mut by_offset: Vec<(u32, u64, u32)> = places
            .filter_map(|(place, code)| Some((code.module?, code.offset, place)))
            .collect();
        by_offset.sort_unstable();
        for frame in 0..self.standing.len() {
            let Some(&Standing::Place(place)) = self.standing.get(frame) else {
                continue;
            };
            let code = profile.places().get(place as usize);
            let Some((module, offset)) = code.and_then(|code| Some((code.module?, code.offset)))
            else {
                continue;
            };
            let before = (module, offset.wrapping_sub(1));
            let at = by_offset.partition_point(|&(module, offset, _)| (module, offset) < before);
            if let Some(&(module, offset, twin)) = by_offset.get(at)
                && (module, offset) == before
            {
                self.place(profile, twin, context);
            }
        }
    }

    /// Append rows of the functions at a frame, innermost first.
    pub(super) fn symbols(
        &mut self,
        profile: &SymbolizedProfile,
        frame: u32,
        context: &Context,
        rows: &mut Vec<SymbolRow>,
    ) {
        let standing = self.standing.get(frame as usize).copied();
        let (Some(standing), Some(id)) = (standing, context.frames.get(frame as usize)) else {
            return;
        };
        let end;
        let chain = match standing {
            Standing::Place(place) => profile.chain_at(place),
            Standing::End(named) => {
                end = [named];
                &end
            }
        };
        for (depth, &named) in (0u32..).zip(chain) {
            rows.push(self.symbol(profile, id, depth, &profile.frame(named)));
        }
    }

    fn symbol(
        &mut self,
        profile: &SymbolizedProfile,
        frame: &FixedLenByteArray,
        depth: u32,
        named: &SymbolizedFrame,
    ) -> SymbolRow {
        let mut of = |id: StringId| {
            let known = self.texts.entry(id);
            known.or_insert_with(|| text(profile.text(id))).clone()
        };
        let number = |number: u32| (number != 0).then(|| signed32(number));
        SymbolRow {
            frame: frame.clone(),
            depth,
            function: of(named.name),
            module: of(named.module),
            file: named.place.file.get().map(&mut of),
            line: number(named.place.line),
            column: number(named.place.column),
            is_inlined: named.inlined,
            reason: named.reason.map(|reason| text(reason.name())),
        }
    }
}
