//! Sizes as people write them: `64MB`, `1GiB`, `1048576`.

/// With less, every read goes to the disk, and the store's own blocks do not fit.
const CACHE_BYTES_MIN: u64 = 8 << 20;

/// The size of a cache: what makes one, and what the machine has.
pub(crate) fn parse_cache_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let memory = memory_bytes();
    match bytes {
        _ if bytes < CACHE_BYTES_MIN => Err("a cache has 8MB at least".to_owned()),
        _ if memory.is_some_and(|memory| bytes > memory) => {
            Err(format!("this machine has {}MB of memory", memory.unwrap_or(0) >> 20))
        }
        _ => Ok(bytes),
    }
}

fn memory_bytes() -> Option<u64> {
    // SAFETY: sysconf reads a number and touches no memory of ours.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).ok()?.checked_mul(u64::try_from(page_bytes).ok()?).filter(|bytes| *bytes > 0)
}

/// MB and MiB mean the same here: nobody sizes a cache in powers of ten.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 =
        text[..digits].parse().map_err(|_| "expected a size such as 512MB, 2GB or 1048576".to_string())?;
    let shift = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("unknown unit '{unit}': use KB, MB, GB or TB")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "larger than any machine's memory".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_a_unit_or_none() {
        for (text, expected) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("512B", 512),
            ("64k", 64 << 10),
            ("512MB", 512 << 20),
            ("2 GiB", 2 << 30),
            ("1tb", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "MB", "-1", "1.5GB", "5 parsecs", "99999999999TB", "99999999999999999999"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cache_fits_the_machine() {
        assert_eq!(parse_cache_size("16MB"), Ok(16 << 20));
        for (text, expected) in [("1KB", "8MB"), ("0", "8MB"), ("900TB", "this machine has"), ("x", "512MB")]
        {
            let error = parse_cache_size(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
