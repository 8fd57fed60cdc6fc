//! Instructions that products are compiled for, and which of them this processor has.

use std::sync::OnceLock;

#[cfg(target_arch = "x86_64")]
use crate::Tier;

/// Instructions that the products of packed weights are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// What every processor has; the definition of the others.
    Scalar,
    /// AVX2 with fused multiply-add and half precision.
    Avx2,
    /// As `Avx2`, with AVX-VNNI: products of bytes in vectors of 256 bits.
    AvxVnni,
    /// AVX-512 with VNNI.
    Avx512,
    /// As `Avx512`, and products of BF16.
    Avx512Bf16,
    /// NEON with dot products.
    Neon,
    /// As `Neon`, and products of matrices of bytes.
    NeonI8mm,
}

impl Instructions {
    /// All sets, those of any processor, the best of each first.
    pub const ALL: &[Instructions] = &[
        Instructions::Avx512Bf16,
        Instructions::Avx512,
        Instructions::NeonI8mm,
        Instructions::Neon,
        Instructions::AvxVnni,
        Instructions::Avx2,
        Instructions::Scalar,
    ];

    /// Returns the best that this processor has.
    pub fn best() -> Instructions {
        static BEST: OnceLock<Instructions> = OnceLock::new();
        *BEST.get_or_init(|| {
            let available = Instructions::ALL.iter().find(|tier| tier.are_available());
            available.copied().unwrap_or(Instructions::Scalar)
        })
    }

    /// Tells whether products want the bytes of two tokens' activations side by side.
    pub(crate) fn wants_pairs(self) -> bool {
        self == Instructions::NeonI8mm
    }

    /// Tells whether this processor has them.
    pub fn are_available(self) -> bool {
        match self {
            Instructions::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => Tier::Avx2.is_available(),
            #[cfg(target_arch = "x86_64")]
            Instructions::AvxVnni => {
                Tier::Avx2.is_available() && is_x86_feature_detected!("avxvnni")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => {
                Tier::Avx512.is_available() && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Bf16 => {
                Instructions::Avx512.are_available() && is_x86_feature_detected!("avx512bf16")
            }
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => {
                std::arch::is_aarch64_feature_detected!("neon")
                    && std::arch::is_aarch64_feature_detected!("dotprod")
            }
            #[cfg(target_arch = "aarch64")]
            Instructions::NeonI8mm => {
                Instructions::Neon.are_available()
                    && std::arch::is_aarch64_feature_detected!("i8mm")
            }
            #[allow(
                unreachable_patterns,
                reason = "which are left depends on the processor"
            )]
            _ => false,
        }
    }
}
