//! Why a frame has no name: data, counted and shown.

/// Why a code address could not be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnresolvedReason {
    /// Nothing was mapped at the address.
    NoModule,
    /// The chunk that held the frame, its module or its stack is lost.
    LostTable,
    /// No file of the module was found.
    NoDebugFile,
    /// Files were found in the module's places, but of another build.
    OtherBuild,
    /// The offset lies in no loadable segment of the module.
    OutsideSegments,
    /// The segments of the module are not known.
    NoSegments,
    /// Files were found, and none of them names the address.
    NoSymbol,
    /// The debug information is damaged or beyond the limits, and no symbol names the address.
    DamagedDebugInfo,
    /// Code made at run time that the process's map does not name.
    GeneratedCode,
    /// Code made at run time, and the archive holds no map of the process.
    NoJitMap,
    /// The archive holds no symbols of the kernel.
    NoKernelSymbols,
    /// Names were not asked for.
    NotAsked,
}

impl UnresolvedReason {
    /// Short name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoModule => "no-module",
            Self::LostTable => "lost-table",
            Self::NoDebugFile => "no-debug-file",
            Self::OtherBuild => "other-build",
            Self::OutsideSegments => "outside-segments",
            Self::NoSegments => "no-segments",
            Self::NoSymbol => "no-symbol",
            Self::DamagedDebugInfo => "damaged-debug-info",
            Self::GeneratedCode => "generated-code",
            Self::NoJitMap => "no-jit-map",
            Self::NoKernelSymbols => "no-kernel-symbols",
            Self::NotAsked => "not-asked",
        }
    }

    /// For people: why, and what to do.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::NoModule => "nothing was mapped at the address",
            Self::LostTable => "the part of the archive that describes it is lost",
            Self::NoDebugFile => {
                "no file with its build ID was found; name a folder with --symbol-dir"
            }
            Self::OtherBuild => {
                "the file found in its place is of another build; name a folder with --symbol-dir"
            }
            Self::OutsideSegments => "the offset lies in no loadable segment",
            Self::NoSegments => {
                "its segments are not known; name a folder with the file itself with --symbol-dir"
            }
            Self::NoSymbol => "no symbol or debug information covers the address",
            Self::DamagedDebugInfo => "its debug information is damaged or too large",
            Self::GeneratedCode => "code made at run time that the process's map does not name",
            Self::NoJitMap => {
                "code made at run time, and no JIT map was recorded; have the program give one (docs/names.md)"
            }
            Self::NoKernelSymbols => "the archive holds no kernel symbols",
            Self::NotAsked => "names were not asked for",
        }
    }
}
