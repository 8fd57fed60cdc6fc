//! What a model can be quantised to, by the names users know.

use std::{fmt, str::FromStr};

use llmsrv_gguf::TensorType;

macro_rules! targets {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $file_type:literal, $main:ident;)*) => {
        /// What a model can be quantised to. A mixture (`_S`, `_M`) gives some tensors more bits than
        /// its main type has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, reason = "the names users know")]
        #[non_exhaustive]
        pub enum Target { $($(#[$doc])* $variant),* }

        impl Target {
            /// All targets, most bits first.
            pub const ALL: &[Target] = &[$(Target::$variant),*];

            /// Returns the name, for example `Q4_K_M`.
            pub fn name(self) -> &'static str {
                match self { $(Target::$variant => $name),* }
            }

            /// Returns the number that files have in `general.file_type`.
            pub fn file_type(self) -> u32 {
                match self { $(Target::$variant => $file_type),* }
            }

            /// Returns the type of most tensors.
            pub fn main_type(self) -> TensorType {
                match self { $(Target::$variant => TensorType::$main),* }
            }
        }
    };
}

// Numbers of file types as in llama.cpp's list of mixes.
targets! {
    /// Single precision.
    F32 = "F32", 0, F32;
    /// Half precision.
    F16 = "F16", 1, F16;
    /// The upper half of single precision.
    Bf16 = "BF16", 32, BF16;
    /// 8.5 bits a weight.
    Q8_0 = "Q8_0", 7, Q8_0;
    /// 6.6 bits a weight.
    Q6_K = "Q6_K", 18, Q6_K;
    /// About 5.7 bits a weight.
    Q5_K_M = "Q5_K_M", 17, Q5_K;
    /// About 5.5 bits a weight.
    Q5_K_S = "Q5_K_S", 16, Q5_K;
    /// 6 bits a weight; the older format.
    Q5_1 = "Q5_1", 9, Q5_1;
    /// 5.5 bits a weight; the older format.
    Q5_0 = "Q5_0", 8, Q5_0;
    /// About 4.8 bits a weight.
    Q4_K_M = "Q4_K_M", 15, Q4_K;
    /// About 4.6 bits a weight.
    Q4_K_S = "Q4_K_S", 14, Q4_K;
    /// 5 bits a weight; the older format.
    Q4_1 = "Q4_1", 3, Q4_1;
    /// 4.5 bits a weight; the older format.
    Q4_0 = "Q4_0", 2, Q4_0;
    /// 4.5 bits a weight, in steps that are wider far from zero.
    IQ4_NL = "IQ4_NL", 25, IQ4_NL;
    /// 4.25 bits a weight, in the same steps.
    IQ4_XS = "IQ4_XS", 30, IQ4_XS;
    /// About 4.1 bits a weight.
    Q3_K_L = "Q3_K_L", 13, Q3_K;
    /// About 3.9 bits a weight.
    Q3_K_M = "Q3_K_M", 12, Q3_K;
    /// About 3.7 bits a weight, of a codebook.
    IQ3_M = "IQ3_M", 27, IQ3_S;
    /// About 3.6 bits a weight.
    Q3_K_S = "Q3_K_S", 11, Q3_K;
    /// About 3.5 bits a weight, of a codebook.
    IQ3_S = "IQ3_S", 26, IQ3_S;
    /// About 3.3 bits a weight, of codebooks.
    IQ3_XS = "IQ3_XS", 22, IQ3_S;
    /// About 3.2 bits a weight.
    Q2_K = "Q2_K", 10, Q2_K;
    /// About 3.1 bits a weight, of codebooks; needs an importance matrix.
    IQ3_XXS = "IQ3_XXS", 23, IQ3_XXS;
    /// About 2.9 bits a weight; needs an importance matrix.
    Q2_K_S = "Q2_K_S", 21, Q2_K;
    /// About 2.7 bits a weight, of codebooks; needs an importance matrix.
    IQ2_M = "IQ2_M", 29, IQ2_S;
    /// About 2.5 bits a weight, of codebooks; needs an importance matrix.
    IQ2_S = "IQ2_S", 28, IQ2_XS;
    /// About 2.3 bits a weight, of a codebook; needs an importance matrix.
    IQ2_XS = "IQ2_XS", 20, IQ2_XS;
    /// About 2.1 bits a weight, of a codebook; needs an importance matrix.
    IQ2_XXS = "IQ2_XXS", 19, IQ2_XXS;
}

/// The name of a target is not known.
#[derive(Debug, thiserror::Error)]
#[error("unsupported quantization type {0} - supported types are {list}", list = names())]
pub struct UnknownTarget(String);

impl FromStr for Target {
    type Err = UnknownTarget;

    /// Reads a name in any case.
    fn from_str(name: &str) -> Result<Target, UnknownTarget> {
        let found = Target::ALL
            .iter()
            .find(|target| target.name().eq_ignore_ascii_case(name));
        found
            .copied()
            .ok_or_else(|| UnknownTarget(name.chars().take(40).collect()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of all targets, for people.
fn names() -> String {
    let names: Vec<&str> = Target::ALL.iter().map(|target| target.name()).collect();
    names.join(", ")
}
