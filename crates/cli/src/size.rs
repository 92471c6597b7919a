//! Sizes as people write them: `64MB`, `1GiB`, `1048576`.

/// With less, every read goes to the disk, and the store's own blocks do not fit.
const CACHE_BYTES_MIN: u64 = 8 << 20;

/// With less, a cache and one operation at its smallest bound do not fit.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// How much memory a server may take.
pub(crate) fn parse_memory_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MEMORY_BYTES_MIN => Err("a server needs 64MB at least".to_owned()),
        bytes => Ok(bytes),
    }
}

/// The size of a cache: what makes one, and what the machine has, or the container.
pub(crate) fn parse_cache_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    let memory = kilim_memory::available_bytes();
    match bytes {
        _ if bytes < CACHE_BYTES_MIN => Err("a cache has 8MB at least".to_owned()),
        _ if memory > 0 && bytes > memory => Err(format!("there are {}MB of memory", memory >> 20)),
        _ => Ok(bytes),
    }
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
        for (text, expected) in [("1KB", "8MB"), ("0", "8MB"), ("900TB", "there are"), ("x", "512MB")] {
            let error = parse_cache_size(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
