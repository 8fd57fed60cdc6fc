//! What computes encoders on the NPU of this machine.

use llmsrv_config::Config;
use llmsrv_devices::{
    Sysroot,
    npu::{self, MAKERS, Npu},
    onnx::Processor,
    testnpu,
};
use llmsrv_engine::NpuOptions;

/// Why an NPU that was asked for is not used, and what helps.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// What there is not.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// Finds ONNX Runtime and the provider for the NPU; `None` if nobody asked for one. Neither library nor driver is
/// touched.
pub fn find(config: &Config) -> Option<Result<NpuOptions, Missing>> {
    config.server.npu.then(|| {
        let root = Sysroot::machine();
        let provider = if config.server.npu_allow_software {
            Processor::Cpu
        } else {
            provider(&npu::list(&root))?
        };
        let named = config.host.onnx_runtime.clone();
        let missing = || Missing {
            what: "ONNX Runtime is not installed".into(),
            hint: format!(
                "name its library, built with {}, with LLMSRV_ONNX_RUNTIME",
                provider.provider()
            ),
        };
        let runtime = named
            .filter(|path| path.is_file())
            .or_else(|| testnpu::find_runtime(&root));
        Ok(NpuOptions {
            runtime: runtime.ok_or_else(missing)?,
            provider: provider.name().to_owned(),
            cache: Some(config.server.models.join(CACHE)),
        })
    })
}

/// Returns the execution provider of the first NPU that has one.
fn provider(npus: &[Npu]) -> Result<Processor, Missing> {
    let known = npus.iter().find_map(|npu| npu.maker.provider);
    known.ok_or_else(|| {
        if let Some(npu) = npus.first() {
            return Missing {
                what: format!("ONNX Runtime has no execution provider for {}", npu.name),
                hint: "LLMSRV_NPU=0 ends this warning".into(),
            };
        }
        let usable = MAKERS.iter().filter(|maker| maker.provider.is_some());
        let names: Vec<&str> = usable.map(|maker| maker.name).collect();
        Missing {
            what: "no NPU was found".into(),
            hint: format!(
                "those of {} can be used; `llmsrv testnpu` says what this machine has",
                names.join(", ")
            ),
        }
    })
}

/// The folder, beside the models, for what providers compiled. It may be removed at any time.
const CACHE: &str = "npu-cache";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_npu_it_is_said_which_could_be_used() {
        let missing = provider(&[]).unwrap_err();
        assert_eq!(missing.what, "no NPU was found");
        assert!(missing.hint.contains("Intel, AMD, Qualcomm"), "{missing:?}");
    }
}
