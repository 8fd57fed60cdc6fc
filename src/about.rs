//! What this build is, and what the processor has for it.

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit it was built on, where that was known.
pub const COMMIT: Option<&str> = option_env!("PROGRAM_COMMIT");
/// What it was compiled for.
pub const TARGET: &str = env!("PROGRAM_TARGET");

/// Returns the features that are compiled in.
pub fn features() -> Vec<&'static str> {
    env!("PROGRAM_FEATURES").split_whitespace().collect()
}

/// Makes the function that asks the processor for each set of instructions.
macro_rules! instruction_sets {
    ($($architecture:literal, $detected:ident: [$($name:tt)*];)*) => {
        /// Returns those of the sets of instructions that the kernels look for which this processor has.
        pub fn instruction_sets() -> Vec<&'static str> {
            let mut found = Vec::new();
            $(
                #[cfg(target_arch = $architecture)]
                {
                    $(if std::arch::$detected!($name) {
                        found.push($name);
                    })*
                }
            )*
            found
        }

        /// All of them, of all architectures.
        #[cfg(test)]
        const KNOWN: &[&str] = &[$($($name),*),*];
    };
}
instruction_sets! {
    "x86_64", is_x86_feature_detected: [
        "avx2" "fma" "f16c" "avxvnni" "avx512f" "avx512bw" "avx512vl" "avx512vnni" "avx512bf16"
    ];
    "aarch64", is_aarch64_feature_detected: ["neon" "dotprod" "i8mm"];
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn the_known_sets_of_instructions_are_those_of_the_kernels() {
        let mut asked = BTreeSet::new();
        let mut open =
            vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/llmsrv-kernels/src")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(
                    fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
                continue;
            }
            // The others are tables.
            if path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            let names = text.split("_feature_detected!(\"").skip(1);
            asked.extend(names.map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
        let known: BTreeSet<String> = KNOWN.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(known, asked);
        for name in instruction_sets() {
            assert!(known.contains(name), "{name}");
        }
    }
}
