//! Records of every shape, drawn from numbers.

use std::vec;

use rawstack_format::Damage;
use rawstack_format::copies::{
    CopiesBuilder, CopyLoss, Missing, NewCopy, Registers, ReturnAddress, Span, StackCopies, X86_64,
};
use rawstack_format::id::{
    Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex,
};
use rawstack_format::record::{
    Batch, Completion, Drop, DropReason, End, Event, Frame, FrameKind, JitMap, KernelModule,
    KernelModules, KernelSymbol, KernelSymbols, Mapping, Mode, Module, ModuleKind, Part, Process,
    Record, Recording, Run, Sample, Segment, StackNode, State, Thread, Vdso,
};

/// A copy of a stack with memory of its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DrawnCopy {
    pub(crate) owner: u64,
    pub(crate) task: (u32, u32),
    pub(crate) registers: Registers,
    pub(crate) loss: CopyLoss,
    pub(crate) start: u64,
    pub(crate) left_out: u64,
    pub(crate) further: Vec<Span>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) program_since_ns: u64,
    pub(crate) trampoline: u64,
    pub(crate) returns: Vec<ReturnAddress>,
}

impl DrawnCopy {
    pub(crate) fn taken(&self) -> NewCopy<'_> {
        let further: u64 = self.further.iter().map(|span| span.asked).sum();
        let asked = self.bytes.len() as u64 - further;
        NewCopy {
            owner: StackId(self.owner),
            pid: self.task.0,
            tid: self.task.1,
            machine: X86_64,
            registers: self.registers,
            loss: self.loss,
            start: Addr(self.start),
            end: Addr(self.start + asked + self.left_out),
            asked,
            further: &self.further,
            bytes: &self.bytes,
            missing: &self.missing,
            program_since_ns: self.program_since_ns,
            trampoline: Addr(self.trampoline),
            returns: &self.returns,
        }
    }
}

/// Builds records from drawn numbers; zeros when they are used up, so that fewer numbers make a smaller record.
pub(crate) struct Draw(pub(crate) vec::IntoIter<u64>);

impl Draw {
    /// A number of any size: small, near the largest, or in between.
    fn u64(&mut self) -> u64 {
        let raw = self.0.next().unwrap_or(0);
        match raw & 3 {
            0 => raw >> 2 & 0xf,
            1 => u64::MAX - (raw >> 2 & 0xf),
            2 => raw >> (raw >> 2 & 63),
            _ => raw,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.0.next().unwrap_or(0) % bound as u64) as usize
    }

    fn u32(&mut self) -> u32 {
        (self.u64() & 0xffff_ffff) as u32
    }

    fn u16(&mut self) -> u16 {
        (self.u64() & 0xffff) as u16
    }

    fn u8(&mut self) -> u8 {
        (self.u64() & 0xff) as u8
    }

    fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn list<T>(&mut self, most: usize, mut row: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most)).map(|_| row(self)).collect()
    }

    fn string(&mut self) -> String {
        let letters = [
            "",
            "a",
            "__pfx_",
            "ß",
            "\0",
            "\u{10ffff}",
            "\u{1b}[2J",
            "/usr/lib",
        ];
        self.list(4, |draw| draw.of(&letters)).concat()
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.list(40, Self::u8)
    }

    fn pairs(&mut self) -> Vec<(String, String)> {
        self.list(4, |draw| (draw.string(), draw.string()))
    }

    fn build_id(&mut self) -> Option<BuildId> {
        BuildId::new(&self.bytes())
    }

    /// The next record.
    pub(crate) fn record(&mut self) -> Record {
        match self.below(10) {
            0 => Record::Recording(self.recording()),
            1 => Record::KernelSymbols(self.kernel_symbols()),
            2 => Record::KernelModules(KernelModules {
                modules: self.list(5, Self::kernel_module),
            }),
            3 => Record::Vdso(Vdso {
                build_id: self.build_id(),
                class: self.u8(),
                image: self.bytes(),
            }),
            4 => Record::JitMap(JitMap {
                pid: self.u32(),
                kind: self.u8(),
                time_ns: self.u64(),
                position: self.u64(),
                bytes: self.bytes(),
            }),
            5 => Record::Runs(self.list(5, Self::run)),
            6 => Record::StackCopies(self.stack_copies()),
            7 => Record::End(self.end()),
            8 => Record::Part(self.part()),
            _ => Record::Batch(self.batch()),
        }
    }

    fn part(&mut self) -> Part {
        let mut damage = Damage::default();
        damage.header_copy = self.bool();
        damage.gap_count = self.u64();
        damage.gap_bytes = self.u64();
        damage.lost_parts = self.u32().into();
        damage.whole_chunks = self.u64();
        damage.ended = self.bool();
        Part {
            name: self.string(),
            bytes: self.u64(),
            format: (self.u16(), self.u16()),
            is_last: self.bool(),
            is_cut: self.bool(),
            damage,
        }
    }

    fn recording(&mut self) -> Recording {
        Recording {
            epoch: self.u32(),
            mode: self.of(&[Mode::Deferred, Mode::Immediate, Mode::Off]),
            mode_reason: self.string(),
            start_ns: self.u64(),
            start_wall_ns: self.u64(),
            writer: self.string(),
            events: self.list(4, |draw| Event {
                name: draw.string(),
                unit: draw.string(),
                period: draw.u64(),
                frequency: draw.u64(),
            }),
            options: self.pairs(),
            host: self.pairs(),
            labels: self.pairs(),
        }
    }

    fn kernel_symbols(&mut self) -> KernelSymbols {
        KernelSymbols {
            part: self.u32(),
            parts: self.u32(),
            build_id: self.build_id(),
            text_size: self.u64(),
            symbols: self.list(12, |draw| KernelSymbol {
                offset: draw.u64(),
                kind: draw.of(b"tTwW"),
                module: draw.of(&["", "ext4", "bpf"]).into(),
                name: draw
                    .of(&["x", "__pfx_x", "__pfx___pfx_x", "__pfx_", ""])
                    .into(),
            }),
        }
    }

    fn kernel_module(&mut self) -> KernelModule {
        KernelModule {
            name: self.string(),
            build_id: self.build_id(),
            size: self.u64(),
            sections: self.list(4, |draw| (draw.string(), draw.u64())),
        }
    }

    fn run(&mut self) -> Run {
        Run {
            run: self.u32(),
            start_ns: self.u64(),
            end_ns: self.u64(),
            work: self.u32().into(),
            exit: self.u32().cast_signed(),
        }
    }

    /// Copies of two processes with three threads, whose stacks have much in common.
    fn stack_copies(&mut self) -> StackCopies {
        let mut builder = CopiesBuilder::default();
        for copy in self.list(8, Self::drawn_copy) {
            assert!(
                builder.push(&copy.taken()).unwrap(),
                "a chunk holds eight copies"
            );
        }
        builder.take()
    }

    /// One copy as it is taken.
    pub(crate) fn drawn_copy(&mut self) -> DrawnCopy {
        let words = self.below(80) as u64;
        let start = 0x7fff_0000_0000 + self.below(90) as u64 * 8;
        let mut copy = DrawnCopy {
            owner: self.u64(),
            task: self.of(&[(7, 7), (7, 8), (9, 9)]),
            start,
            left_out: self.of(&[0, 5, 0x7_0000_0000]),
            program_since_ns: self.u64(),
            ..DrawnCopy::default()
        };
        if self.below(6) == 0 {
            copy.loss = self.of(&CopyLoss::ALL[1..]);
            copy.left_out = 0;
            return copy;
        }
        copy.further = self.further(start + words * 8 + copy.left_out);
        let further: u64 = copy.further.iter().map(|span| span.asked).sum();
        let words = words + further / 8;
        copy.bytes = (0..words)
            .flat_map(|_| {
                self.of(&[0, 1, 0x7fff_0000_0100_u64, u64::MAX])
                    .to_le_bytes()
            })
            .collect();
        let mut from = 0;
        while self.bool() && from < words {
            let offset = from + self.below((words - from) as usize) as u64;
            let len = 1 + self.below((words - offset) as usize) as u64;
            copy.missing.push(Missing {
                offset: offset * 8,
                len: len * 8,
            });
            let range = offset as usize * 8..(offset + len) as usize * 8;
            copy.bytes[range].fill(0);
            from = offset + len + 1;
        }
        for _ in 0..self.below(5) {
            let (number, value) = (self.below(40) as u16, self.u64());
            assert!(copy.registers.set(number, value));
        }
        copy.returns = self.list(5, |draw| ReturnAddress {
            place: Addr(start.wrapping_add(draw.u64())),
            address: Addr(draw.u64()),
        });
        if !copy.returns.is_empty() {
            copy.trampoline = self.u64().max(1);
        }
        copy
    }

    /// The last words of a stack that ends at `end`, where it is a long one, and words of another.
    fn further(&mut self, end: u64) -> Vec<Span> {
        let mut spans = Vec::new();
        if end > 0x7fff_8000_0000 && self.bool() {
            let words = 1 + self.below(40) as u64;
            spans.push(Span {
                start: Addr(end / 8 * 8 - words * 8),
                end: Addr(end),
                asked: words * 8,
            });
        }
        if self.bool() {
            let start = 0x6fff_0000_0000 + self.below(90) as u64 * 8;
            let asked = (1 + self.below(40) as u64) * 8;
            spans.push(Span {
                start: Addr(start),
                end: Addr(start + asked + self.below(9) as u64),
                asked,
            });
        }
        spans
    }

    fn end(&mut self) -> End {
        End {
            end_ns: self.u64(),
            end_wall_ns: self.u64(),
            reserved: self.u64(),
            states: [0; 8].map(|_: u64| self.u64()),
            exit: self.u32().cast_signed(),
        }
    }

    /// A batch whose indices are within its tables.
    fn batch(&mut self) -> Batch {
        let [first_module, first_frame, first_stack] = [0; 3].map(|_: u32| self.u32() >> 1);
        let modules = self.list(6, Self::module);
        let module_end = first_module + modules.len() as u32;
        let frames = self.list(20, |draw| draw.frame(module_end));
        let frame_end = first_frame + frames.len() as u32;
        let mut own = first_stack;
        let stacks = self.list(30, |draw| {
            let parent = StackIndex(draw.index(own));
            own += 1;
            // A frame is never none.
            StackNode {
                parent,
                frame: FrameIndex(draw.u32() % frame_end.max(1)),
            }
        });
        let stacks = if frame_end == 0 { Vec::new() } else { stacks };
        let stack_end = first_stack + stacks.len() as u32;
        Batch {
            epoch: self.u32(),
            first_module,
            first_frame,
            first_stack,
            processes: self.list(4, Self::process),
            threads: self.list(4, Self::thread),
            modules,
            mappings: self.list(6, |draw| draw.mapping(module_end)),
            frames,
            stacks,
            samples: self.list(60, |draw| draw.sample(stack_end)),
            completions: self.list(6, |draw| Completion {
                owner: StackId(draw.u64()),
                time_ns: draw.u64(),
                state: draw.of(&State::ALL),
                user: StackIndex(draw.index(stack_end)),
                user_depth: draw.u32(),
            }),
            drops: self.list(6, Self::drop),
        }
    }

    /// An index below `end`, or none.
    fn index(&mut self, end: u32) -> u32 {
        if end == 0 || self.below(4) == 0 {
            u32::MAX
        } else {
            self.u32() % end
        }
    }

    fn module(&mut self) -> Module {
        use ModuleKind::{Anonymous, BpfProgram, Elf, Kernel, Vdso};
        Module {
            kind: self.of(&[
                Elf,
                Kernel,
                ModuleKind::KernelModule,
                BpfProgram,
                Vdso,
                Anonymous,
            ]),
            class: self.u8(),
            machine: self.u16(),
            page_size: self.u32(),
            build_id: self.build_id(),
            content_hash: self.bool().then(|| [self.u8(); 16]),
            path: self.string(),
            segments: self.list(4, |draw| Segment {
                offset: FileOffset(draw.u64()),
                vaddr: draw.u64(),
                file_size: draw.u64(),
                flags: draw.u32(),
            }),
        }
    }

    fn frame(&mut self, module_end: u32) -> Frame {
        use FrameKind::{KernelCaller, KernelLeaf, UserCaller, UserLeaf};
        Frame {
            kind: self.of(&[UserLeaf, UserCaller, KernelLeaf, KernelCaller]),
            address: Addr(self.u64()),
            module: ModuleIndex(self.index(module_end)),
            offset: FileOffset(self.u64()),
        }
    }

    fn process(&mut self) -> Process {
        Process {
            pid: self.u32(),
            parent: self.u32(),
            namespace_pid: self.u32(),
            start_ns: self.u64(),
            since_ns: self.u64(),
            comm: self.string(),
            cgroup: self.string(),
        }
    }

    fn thread(&mut self) -> Thread {
        let [pid, tid] = [self.u32(), self.u32()];
        Thread {
            pid,
            tid,
            start_ns: self.u64(),
            since_ns: self.u64(),
            comm: self.string(),
        }
    }

    fn mapping(&mut self, module_end: u32) -> Mapping {
        Mapping {
            pid: self.u32(),
            start: Addr(self.u64()),
            end: Addr(self.u64()),
            offset: FileOffset(self.u64()),
            protection: self.u32(),
            device_major: self.u32(),
            device_minor: self.u32(),
            inode: self.u64(),
            since_ns: self.u64(),
            path: self.string(),
            module: ModuleIndex(self.index(module_end)),
        }
    }

    fn sample(&mut self, stack_end: u32) -> Sample {
        Sample {
            id: StackId(self.u64()),
            owner: StackId(self.u64()),
            time_ns: self.u64(),
            cpu: self.u32(),
            pid: self.u32(),
            tid: self.u32(),
            event: self.u32(),
            run: self.u32(),
            weight: self.u64(),
            state: self.of(&State::ALL),
            kernel_cut: self.bool(),
            kernel: StackIndex(self.index(stack_end)),
            user: StackIndex(self.index(stack_end)),
            user_depth: self.u32(),
        }
    }

    fn drop(&mut self) -> Drop {
        use DropReason::{BufferFull, Contended, SideBand, Unwritten, UserHalf};
        Drop {
            reason: self.of(&[BufferFull, Contended, Unwritten, UserHalf, SideBand]),
            cpu: self.u32(),
            count: self.u64() >> 16,
            from_ns: self.u64(),
            to_ns: self.u64(),
        }
    }
}
