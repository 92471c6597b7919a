//! Whole numbers in as few bytes as they need, for states on disk: seven bits a byte, the sign in the lowest.

/// On disk.
pub(crate) fn push(out: &mut Vec<u8>, number: impl Into<i128>) {
    let number = number.into();
    let mut left = ((number << 1) ^ (number >> 127)) as u128;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The next number, of which `stored` is then rid; none where it is not what [`push`] wrote.
pub(crate) fn take(stored: &mut &[u8]) -> Option<i128> {
    let mut number = 0u128;
    for shift in (0..128).step_by(7) {
        let (&byte, rest) = stored.split_first()?;
        *stored = rest;
        number |= u128::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some((number >> 1) as i128 ^ -((number & 1) as i128));
        }
    }
    None
}

pub(crate) fn take_long(stored: &mut &[u8]) -> Option<i64> {
    take(stored).and_then(|number| i64::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, -1, 63, 64, -64, -65, 1 << 40, -(1 << 90), i128::MAX, i128::MIN];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| push(&mut bytes, *number));
        let mut stored = &bytes[..];
        for number in numbers {
            assert_eq!(take(&mut stored), Some(number));
        }
        assert!(stored.is_empty() && take(&mut stored).is_none());
    }
}
