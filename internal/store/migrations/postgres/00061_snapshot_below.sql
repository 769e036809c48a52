-- What lies below the root filesystem of a snapshot counts for its workspace: pulled images, and snapshots, also deleted snapshots and
-- snapshots of others. Built-in images and images that the workspace has built are not in it.

-- +goose Up
CREATE TABLE snapshot_below (
    snapshot_id TEXT COLLATE "C" NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    digest TEXT COLLATE "C" NOT NULL,
    size_bytes BIGINT NOT NULL,
    PRIMARY KEY (snapshot_id, digest)
);
INSERT INTO snapshot_below (snapshot_id, digest, size_bytes)
    WITH RECURSIVE below (id, workspace_id, digest) AS (
        SELECT id, workspace_id, base_digest FROM snapshots WHERE is_layer = 1
        UNION SELECT b.id, b.workspace_id, s.base_digest FROM below b JOIN snapshots s ON s.digest = b.digest AND s.workspace_id = b.workspace_id
            WHERE s.is_layer = 1)
    SELECT b.id, b.digest, max(s.size_bytes) FROM below b JOIN snapshots s ON s.digest = b.digest AND s.workspace_id = b.workspace_id
        GROUP BY b.id, b.digest;
ALTER TABLE snapshots DROP COLUMN is_layer;

-- +goose Down
ALTER TABLE snapshots ADD COLUMN is_layer BIGINT NOT NULL DEFAULT 0;
UPDATE snapshots SET is_layer = 1 WHERE EXISTS (SELECT 1 FROM snapshot_below b WHERE b.snapshot_id = snapshots.id AND b.digest = snapshots.base_digest);
DROP TABLE snapshot_below;
