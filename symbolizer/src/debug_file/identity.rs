//! What tells that a file is the one that was recorded.

use rawstack_format::id::BuildId;
use rawstack_format::record::{Module, Vdso};
use sha2::{Digest, Sha256};

use super::elf::{ElfFile, PF_X};
use rawstack_format::record::Segment;

/// Bytes at the start and at the end of a file that its hash covers.
const HASHED: usize = 4096;

/// First 16 bytes of SHA-256 over the first 4096 bytes, the last 4096 and the length (big-endian).
pub fn content_hash(bytes: &[u8]) -> [u8; 16] {
    let head = bytes.get(..HASHED).unwrap_or(bytes);
    let tail = bytes
        .get(bytes.len().saturating_sub(HASHED)..)
        .unwrap_or(bytes);
    let digest = Sha256::new()
        .chain_update(head)
        .chain_update(tail)
        .chain_update((bytes.len() as u64).to_be_bytes())
        .finalize();
    let mut hash = [0; 16];
    hash.iter_mut()
        .zip(digest.iter())
        .for_each(|(to, from)| *to = *from);
    hash
}

/// Whether `file` is `module`, or describes it.
///
/// By build ID; without one by content hash; without either only where the executable segments are the same, which a
/// rebuilt file of any size rarely has.
pub fn is_same(module: &Module, file: &ElfFile) -> bool {
    match (&module.build_id, module.content_hash) {
        (Some(build_id), _) => file.build_id.as_ref() == Some(build_id),
        (None, Some(hash)) => content_hash(file.bytes()) == hash,
        (None, None) => {
            let code = |segments: &[_]| -> Vec<_> {
                let code = |segment: &&Segment| segment.flags & PF_X != 0;
                segments.iter().filter(code).copied().collect()
            };
            let recorded = code(&module.segments);
            !recorded.is_empty() && recorded == code(&file.segments)
        }
    }
}

/// Whether `vdso` is the image of `module`, the vDSO of a process.
pub fn is_vdso_of(vdso: &Vdso, module: &Module) -> bool {
    match (&vdso.build_id, &module.build_id) {
        (Some(held), Some(wanted)) => held == wanted,
        _ => module.class == 0 || vdso.class == module.class,
    }
}

/// Folder and file name below a `.build-id` tree: `ab` and `cdef…`. IDs of one byte have no file name.
pub fn tree_path(build_id: &BuildId) -> Option<(String, String)> {
    let hex = build_id.to_string();
    let (folder, name) = hex.split_at_checked(2)?;
    (!name.is_empty()).then(|| (folder.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the hash against one that was worked out with sha256sum, for a file shorter than the hashed parts.
    #[test]
    fn hash_of_short_file() {
        // (printf 'abc'; printf 'abc'; printf '\0\0\0\0\0\0\0\3') | sha256sum
        let hex: String = content_hash(b"abc")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "a7e79e8a85da69bad5c3fea209342ac9");
    }

    /// Check the layout of a `.build-id` tree.
    #[test]
    fn tree() {
        let id = BuildId::from_hex("abcdef").unwrap();
        assert_eq!(tree_path(&id), Some(("ab".to_owned(), "cdef".to_owned())));
        assert_eq!(tree_path(&BuildId::from_hex("ab").unwrap()), None);
    }
}
