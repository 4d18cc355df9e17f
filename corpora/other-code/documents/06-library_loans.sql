CREATE TABLE member (
    member_id  INTEGER PRIMARY KEY,
    full_name  TEXT NOT NULL,
    email      TEXT UNIQUE,
    joined_on  DATE NOT NULL
);

CREATE TABLE loan (
    loan_id     INTEGER PRIMARY KEY,
    member_id   INTEGER NOT NULL REFERENCES member,
    barcode     TEXT NOT NULL,
    taken_on    DATE NOT NULL,
    due_on      DATE NOT NULL,
    returned_on DATE,
    CHECK (due_on >= taken_on)
);

-- a copy can be on loan only once at a time
CREATE UNIQUE INDEX loan_open_idx ON loan (barcode) WHERE returned_on IS NULL;

CREATE VIEW overdue AS
SELECT m.full_name, l.barcode, l.due_on
FROM loan AS l
JOIN member AS m USING (member_id)
WHERE l.returned_on IS NULL
  AND l.due_on < CURRENT_DATE;

-- months in which each member borrowed most, with ties
WITH monthly AS (
    SELECT member_id,
           substr(taken_on, 1, 7) AS month,
           count(*) AS loans
    FROM loan
    GROUP BY member_id, substr(taken_on, 1, 7)
), ranked AS (
    SELECT monthly.*,
           rank() OVER (PARTITION BY member_id ORDER BY loans DESC) AS place,
           avg(loans) OVER (PARTITION BY member_id) AS usual
    FROM monthly
)
SELECT m.full_name, r.month, r.loans, round(r.usual, 1) AS usual
FROM ranked AS r
JOIN member AS m ON m.member_id = r.member_id
WHERE r.place = 1
ORDER BY r.loans DESC, m.full_name;
