INSERT OR IGNORE INTO $new (lot, article, amount, unit, price_cents, remark)
SELECT
    printf('$letter-%0${width}d', lot),
    article,
    CAST(substr(quantity, 1, instr(quantity, ' ') - 1) AS INTEGER),
    substr(quantity, instr(quantity, ' ') + 1),
    CAST($cents AS INTEGER),
    remark
FROM $old;
