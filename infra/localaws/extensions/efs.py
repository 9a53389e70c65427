"""PutBackupPolicy and DeleteFileSystemPolicy, which moto lacks.

https://docs.aws.amazon.com/efs/latest/ug/API_PutBackupPolicy.html
https://docs.aws.amazon.com/efs/latest/ug/API_DeleteFileSystemPolicy.html
"""

from __future__ import annotations

import json
from typing import Any

from moto.efs.models import EFSBackend
from moto.efs.responses import EFSResponse

from infra.localaws.patching import around, method


def backup_policies() -> None:
    @method(EFSResponse)
    def put_backup_policy(self: Any) -> tuple[str, dict[str, Any]]:
        system = _file_system(self)
        status = self._get_param("BackupPolicy")["Status"]
        system._backup = status in ("ENABLED", "ENABLING")
        system.told_backup = True
        return json.dumps({"BackupPolicy": {"Status": status}}), {"Content-Type": "application/json"}

    @around(EFSBackend)
    def describe_backup_policy(original: Any, self: Any, file_system_id: str) -> Any:
        system = self.file_systems_by_id.get(file_system_id)
        if getattr(system, "told_backup", False) and not system._backup:
            return {"Status": "DISABLED"}
        return original(self, file_system_id)

    @method(EFSResponse)
    def delete_file_system_policy(self: Any) -> tuple[str, dict[str, Any]]:
        _file_system(self).file_system_policy = None
        return "", {"status": 200, "Content-Type": "application/json"}


def _file_system(response: Any) -> Any:
    name = response._get_param("FileSystemId")
    response.efs_backend.describe_file_systems(None, 1, None, name)  # raises if there is none
    return response.efs_backend.file_systems_by_id[name]
