CREATE TABLE counts (
    station TEXT NOT NULL REFERENCES stations,
    day DATE NOT NULL,
    species TEXT NOT NULL,
    birds INTEGER NOT NULL CHECK (birds >= 0),
    PRIMARY KEY (station, day, species)
);
