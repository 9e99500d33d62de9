//! strftime over a wall clock given as seconds since 1970.

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Days since 1970 to year, month 1..12, day 1..31 of the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Count from 1 March of year 0, so that a leap day ends its year; 146097 days are 400 years.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + (month <= 2) as i64, month, day)
}

fn day_of_year(year: i64, month: i64, day: i64) -> i64 {
    let is_leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][(month - 1) as usize];
    before + day + (is_leap && month > 2) as i64
}

pub fn strftime(format: &str, now_s: i64) -> String {
    let now_s = now_s.clamp(-62_135_596_800, 253_402_300_799); // years 1 to 9999
    let (days, second) = (now_s.div_euclid(86_400), now_s.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, sec) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = DAYS[days.rem_euclid(7) as usize];
    let month_name = MONTHS[(month - 1) as usize];
    let hour12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut kind = chars.next().unwrap_or('%');
        let is_bare = kind == '-';
        if is_bare {
            kind = chars.next().unwrap_or('%');
        }
        let two = |n: i64| if is_bare { n.to_string() } else { format!("{n:02}") };
        match kind {
            'Y' => out += &year.to_string(),
            'y' => out += &two(year % 100),
            'm' => out += &two(month),
            'd' => out += &two(day),
            'e' => out += &format!("{day:2}"),
            'B' => out += month_name,
            'b' | 'h' => out += &month_name[..3],
            'A' => out += weekday,
            'a' => out += &weekday[..3],
            'H' => out += &two(hour),
            'I' => out += &two(hour12),
            'M' => out += &two(minute),
            'S' => out += &two(sec),
            'p' => out += if hour < 12 { "AM" } else { "PM" },
            'j' => out += &format!("{:03}", day_of_year(year, month, day)),
            'F' => out += &format!("{year}-{month:02}-{day:02}"),
            'T' => out += &format!("{hour:02}:{minute:02}:{sec:02}"),
            'R' => out += &format!("{hour:02}:{minute:02}"),
            'D' => out += &format!("{month:02}/{day:02}/{:02}", year % 100),
            's' => out += &now_s.to_string(),
            'u' => out += &((days + 3).rem_euclid(7) + 1).to_string(),
            'w' => out += &(days + 4).rem_euclid(7).to_string(),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'Z' | 'z' => {} // a naive time has no zone
            '%' => out.push('%'),
            other => {
                out.push('%');
                out.push(other);
            }
        }
    }
    out
}
