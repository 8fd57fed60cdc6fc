//! Sets of instructions, chosen when the program runs.

use std::sync::OnceLock;

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// What every processor of the architecture has. The definition of the others.
    Scalar,
    /// AVX2 with fused multiply-add and conversions of f16.
    Avx2,
    /// AVX-512 F, BW and VL.
    Avx512,
    /// As `Avx512`, and products of bf16.
    Avx512Bf16,
}

impl Tier {
    /// Those with vectors, the best first.
    pub(crate) const VECTORS: [Tier; 3] = [Tier::Avx512Bf16, Tier::Avx512, Tier::Avx2];

    /// Returns the best tier of this processor.
    pub fn best() -> Tier {
        static BEST: OnceLock<Tier> = OnceLock::new();
        *BEST.get_or_init(|| {
            Tier::VECTORS
                .into_iter()
                .find(|tier| tier.is_available())
                .unwrap_or(Tier::Scalar)
        })
    }

    /// Tells whether this processor has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            Tier::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && Tier::Avx2.is_available()
            }
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Bf16 => {
                is_x86_feature_detected!("avx512bf16") && Tier::Avx512.is_available()
            }
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 => false,
        }
    }
}

/// Returns `a * b + c`, rounded once if `FUSED`.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Whether [`Tier::Scalar`] multiplies and adds in one step. Elsewhere that takes a call each time.
pub(crate) const SCALAR_IS_FUSED: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

/// Defines a function that is compiled for the instructions of each tier, and takes the tier as its first argument; for
/// those of [`Tier::Scalar`] where the processor lacks them. Its body may ask for the constant `FUSED`. Written
/// `fn name at name_at(…)`, it is `name_at`, and `name` calls it for the best tier.
///
/// The compiler makes vectors of the lanes that the body counts, and does not change the order of sums;
/// so all tiers but an unfused scalar one give the same bits.
macro_rules! tiered {
    ($(#[$meta:meta])* $vis:vis fn $name:ident at $at:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) {
            $at($crate::Tier::best(), $($arg),*);
        }
        $crate::tier::tiered! { fn $at($($arg: $ty),*) $body }
    };
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[cfg_attr(
            target_arch = "x86_64",
            expect(
                unsafe_code,
                reason = "a function compiled for more instructions can only be called so"
            )
        )]
        $vis fn $name(tier: $crate::Tier, $($arg: $ty),*) {
            #[inline(always)]
            fn plain<const FUSED: bool>($($arg: $ty),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
                fn avx512($($arg: $ty),*) {
                    plain::<true>($($arg),*);
                }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $ty),*) {
                    plain::<true>($($arg),*);
                }
                match tier {
                    $crate::Tier::Avx512 | $crate::Tier::Avx512Bf16 if tier.is_available() => {
                        // SAFETY: the processor has the instructions, as just asked.
                        return unsafe { avx512($($arg),*) };
                    }
                    $crate::Tier::Avx2 if tier.is_available() => {
                        // SAFETY: as above.
                        return unsafe { avx2($($arg),*) };
                    }
                    _ => {}
                }
            }
            let _ = tier;
            plain::<{ $crate::tier::SCALAR_IS_FUSED }>($($arg),*);
        }
    };
}
pub(crate) use tiered;
